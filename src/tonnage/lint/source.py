"""Which form is this text? Files -> one bundle of servers and what stands around them, judged together.

A form is told by what a file holds; its suffix only decides between YAML and a script where both could be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tonnage.errors import InputError
from tonnage.lint.forms.around import is_envoy, is_rules, read_alerts, read_gateway
from tonnage.lint.forms.command import read_script
from tonnage.lint.forms.compose import read_compose
from tonnage.lint.forms.kubernetes import read_manifests
from tonnage.lint.forms.plan import is_plan, read_planned
from tonnage.lint.forms.systemd import is_unit, read_unit
from tonnage.lint.forms.values import is_values, read_values
from tonnage.lint.place import Source
from tonnage.lint.server import Bundle
from tonnage.lint.shell import here_documents
from tonnage.lint.yaml_text import documents

LARGEST_BYTES = 4 * 2**20
IGNORE = re.compile(r"#\s*tonnage:\s*ignore(-file)?(?:\[([a-z0-9, -]*)\])?")
_YAML_START = re.compile(r"(?:---|\{|\[|- |[A-Za-z_\"'./-]+[A-Za-z0-9_\"'./ -]*:(?:\s|$))")


def read_source(data: bytes, file: str) -> Source:
    """Return the text of a file.

    Raises InputError: larger than anyone writes by hand, or no text.
    """
    if len(data) > LARGEST_BYTES:
        raise InputError(
            f"is larger than {LARGEST_BYTES // 2**20} MiB: no command or manifest", where=file, hint="logs are read by tonnage diagnose"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is no UTF-8 text (byte {error.start})", where=file) from None
    if "\x00" in text:
        raise InputError("is no text: it holds zero bytes", where=file)
    return Source(file, text.replace("\r\n", "\n"))


def read_bundle(sources: Sequence[Source]) -> Bundle:
    """Return all that the sources hold together.

    Raises InputError: a file that is none of the forms, or YAML that is none.
    """
    silenced = {key: rules for source in sources for key, rules in ignored(source).items()}
    return joined([_read(source) for source in sources], silenced)


def joined(found: Sequence[Bundle], silenced: dict[tuple[str, int], frozenset[str]] | None = None) -> Bundle:
    """Return bundles as one."""
    return Bundle(
        tuple(server for one in found for server in one.servers),
        tuple(policy for one in found for policy in one.policies),
        tuple(service for one in found for service in one.services),
        tuple(gateway for one in found for gateway in one.gateways),
        tuple(alert for one in found for alert in one.alerts),
        silenced or {},
        tuple(secret for one in found for secret in one.secrets),
    )


def _read(source: Source) -> Bundle:
    if is_plan(source.text):
        return Bundle(tuple(read_planned(source)))
    if is_unit(source.text):
        return Bundle(tuple(read_unit(source)))
    if _is_yaml(source):
        return _yaml(source)
    return _script(source)


def _script(source: Source) -> Bundle:
    """Return what a script starts, and what it feeds to others by here-documents: manifests, compose files, units."""
    servers = read_script(source)
    if "<<" not in source.text:
        return Bundle(tuple(servers))
    found = [Bundle(tuple(servers))]
    for start, end in here_documents(source.text):
        inner = source.only(start, end)
        if is_unit(inner.text):
            found.append(Bundle(tuple(read_unit(inner))))
        elif re.search(r"^(?:apiVersion|services|servingEngineSpec):", source.text[start:end], re.MULTILINE):
            try:
                found.append(_yaml(inner))
            except InputError:
                continue  # a template that only the shell can fill in
    return joined(found)


def _is_yaml(source: Source) -> bool:
    if source.file.endswith((".yaml", ".yml", ".json")):
        return True
    if source.text.startswith("#!"):
        return False
    first = next((line for line in source.text.splitlines()[:2000] if line.strip() and not line.lstrip().startswith("#")), "")
    if source.file.endswith((".sh", ".bash")):
        return re.match(r"(?:apiVersion|kind|services|servingEngineSpec):", first) is not None
    return bool(_YAML_START.match(first))


def _yaml(source: Source) -> Bundle:
    found = documents(source)
    manifests = [document for document in found if document.get("kind") and document.get("apiVersion")]
    held = read_manifests(source, manifests)
    servers, gateways, alerts, secrets = list(held.servers), [], [], list(held.secrets)
    for document in found:
        if is_rules(document):
            alerts += read_alerts(source, document)
        elif is_envoy(document):
            gateways.append(read_gateway(source, document))
        elif document.get("services").kind == "mapping":
            composed, more = read_compose(source, document)
            servers += composed
            secrets += more
        elif not document.get("apiVersion") and is_values(document):
            servers += read_values(source, document)
    return Bundle(tuple(servers), held.policies, held.services, tuple(gateways), tuple(alerts), {}, tuple(secrets))


def ignored(source: Source) -> dict[tuple[str, int], frozenset[str]]:
    """Return the rules that comments silence, by line: their own, and the next line of a comment that stands alone.

    `# tonnage: ignore[rule, rule]` silences those, `# tonnage: ignore` all; line 0 stands for the whole file
    (`# tonnage: ignore-file[rule]`). An empty set is every rule.
    """
    found: dict[tuple[str, int], frozenset[str]] = {}
    if "tonnage:" not in source.text:
        return found
    lines = source.text.splitlines()
    for number, line in enumerate(lines, 1):
        match = IGNORE.search(line) if "tonnage:" in line else None
        if match is None:
            continue
        rules = frozenset(word.strip() for word in (match[2] or "").split(",") if word.strip())
        if match[1]:
            found[source.file, 0] = rules
            continue
        found[source.file, number] = rules
        if line.lstrip().startswith("#"):
            after = next((at for at in range(number + 1, len(lines) + 1) if not lines[at - 1].lstrip().startswith("#")), number)
            found[source.file, after] = rules | found.get((source.file, after), frozenset())
    return found


def without_servers(bundle: Bundle) -> bool:
    """Return whether nothing that was given starts an engine or says anything of one."""
    return not (bundle.servers or bundle.alerts or bundle.secrets)
