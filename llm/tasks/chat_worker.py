"""Render chats in a child process of llm/tasks/codec.py: it reads a chat template and chats, and writes their texts. A
template is a program that came with a model.

It is run as a script, so that it imports nothing of this package. It ends at its limit of memory or of time, whatever a
template does."""

import contextlib
import json
import math
import sys
import time
from pathlib import Path

MEMORY = 1 << 30
"""Bytes of address space for templates, in addition to the libraries'."""


def limit_process(seconds: int) -> None:
    """Limit this process to MEMORY and to `seconds` of CPU time from now on, or to its user's limit, where the system
    can."""
    import resource

    # the limit counts from the start of the process, and importing the libraries takes seconds on a slow machine
    most, allowed = math.ceil(time.process_time()) + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed - 1)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    with contextlib.suppress(OSError, ValueError):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def render_chats(request: dict) -> dict:
    """Return the texts of all chats, or the index of the first that has none with the reason."""
    from transformers.utils.chat_template_utils import render_jinja_template

    limit_process(request["seconds"])
    texts: list[str] = []
    for at, chat in enumerate(request["chats"]):
        try:
            rendered = render_jinja_template(
                [chat], chat_template=request["template"], add_generation_prompt=True, **request["variables"]
            )[0]
            longest = request["longest"] + sum(len(message["content"]) for message in chat)
            if len(rendered[0]) > longest:
                raise ValueError(f"it writes {len(rendered[0])} characters; allowed: {longest}")
            texts += rendered
        except MemoryError:
            return {"at": at, "said": f"it needs more memory than {MEMORY >> 20} MB"}
        except Exception as error:  # templates raise any exception
            return {"at": at, "said": str(error) or type(error).__name__}
    return {"texts": texts}


if __name__ == "__main__":
    json.dump(render_chats(json.load(sys.stdin)), sys.stdout)
