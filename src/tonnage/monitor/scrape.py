"""What a running server says of itself: its pages, fetched with bounds on time and size, and never followed elsewhere."""

from __future__ import annotations

import http.client
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tonnage.errors import EndpointError, InputError

LARGEST_BYTES = 32 * 2**20
TIMEOUT_S = 10.0


def base_of(url: str) -> str:
    """Return the address of a server, from an address of any of its pages.

    >>> base_of("http://llm:8000/v1"), base_of("llm:8000/metrics")
    ('http://llm:8000', 'http://llm:8000')

    Raises InputError: no address, or neither http nor https.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError(f"{url!r} is no address", hint="write it like http://HOST:8000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no address of a server", hint="write it like http://HOST:8000")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def fetch(url: str, *, key: str = "", timeout_s: float = TIMEOUT_S) -> str:
    """Return a page's text.

    Raises EndpointError: nobody answers, not in time, with another status than 200, or with more than anyone should.
    """
    parts = urlsplit(url)
    kind: Any = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    more = {"context": ssl.create_default_context()} if parts.scheme == "https" else {}
    connection = kind(parts.hostname, parts.port, timeout=timeout_s, **more)
    try:
        connection.request("GET", parts.path or "/", headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        body: bytes = answer.read(LARGEST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise EndpointError(
            f"does not answer ({error or type(error).__name__})", where=url, hint="is the server up, and the address right?"
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        raise EndpointError(f"answers {answer.status} {answer.reason}", where=url)
    if len(body) > LARGEST_BYTES:
        raise EndpointError(f"answers more than {LARGEST_BYTES // 2**20} MiB", where=url)
    return body.decode("utf-8", "replace")


def fetch_json(url: str, *, key: str = "") -> Any:
    """Return a page's JSON value; None where the server has no such page. Raises EndpointError where nobody answers."""
    try:
        text = fetch(url, key=key)
    except EndpointError as error:
        if error.problem.startswith("answers "):
            return None
        raise
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
