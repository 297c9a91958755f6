"""Names that somebody might give a curve."""

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{constructor.constructor('alert(1)')()}}",
    "javascript:alert(1)",
    "\u202egpj.exe",
    "👩‍🔬🔥",
    "a" * 10_000,
    "&amp;&pin=B%3D1&name=x",
    "\x00\x1b[2J\r\n\t",
    "${7*7} %s %n ../../etc/passwd",
)
