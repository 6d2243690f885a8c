"""A plan as a hardened systemd unit: its own user, read-only weights, no network but this machine."""

from __future__ import annotations

from tonnage.render.choices import Site
from tonnage.render.command import chosen, comments, heading, pair
from tonnage.render.plan_file import PlanFile
from tonnage.render.startup import startup_s

PROGRAM = "/opt/vllm/bin/vllm"


def quoted(word: str) -> str:
    """Return a word as systemd reads it: percent signs doubled, quotes and backslashes escaped."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if not any(character in plain for character in " \"'\\;"):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unit_text(made: PlanFile, site: Site) -> str:
    """Return the unit."""
    flags = chosen(made, site)
    body = [f"ExecStart={PROGRAM} serve {quoted(site.model)}"]
    body += ["    " + " ".join(quoted(word) for word in pair(choice)) for choice in flags]
    return "\n".join(
        [
            *heading(made, "vllm"),
            *comments(flags),
            "[Unit]",
            f"Description={site.alias} on {made.settings.release_name}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            "Type=exec",
            "User=vllm",
            "Environment=HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1",
            "Environment=HOME=/var/cache/vllm",
            "CacheDirectory=vllm",
            " \\\n".join(body),
            f"TimeoutStartSec={startup_s(made)}",
            "TimeoutStopSec=120",
            "Restart=on-failure",
            "RestartSec=10",
            "LimitMEMLOCK=infinity",
            "LimitNOFILE=65536",
            "# what the process may see and reach",
            f"ReadOnlyPaths={site.model}",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            "IPAddressDeny=any",
            "IPAddressAllow=localhost",
            "ProtectKernelModules=yes",
            "ProtectKernelTunables=yes",
            "ProtectControlGroups=yes",
            "RestrictSUIDSGID=yes",
            "LockPersonality=yes",
            "UMask=0077",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
