"""The explorer's server: who is answered, and how it ends."""

import signal
from importlib.util import find_spec
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.support.machine.here import refused
from tests.support.web.browser import PATIENCE
from tests.support.web.explorer_page import explorer

needs_nicegui = pytest.mark.skipif(find_spec("nicegui") is None, reason="needs nicegui: the extra explore")


def answered(address, **headers):
    try:
        with urlopen(Request(address, headers=headers), timeout=PATIENCE) as found:
            return found.status, dict(found.headers)
    except HTTPError as error:
        return error.code, {}


@needs_nicegui
def test_strangers_are_refused_and_ctrl_c_ends_it_at_once():
    with explorer() as (address, process):
        root = f"http://{urlsplit(address).netloc}"
        status, headers = answered(address)
        assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
        assert len(urlsplit(address).path.strip("/")) >= 22
        assert answered(f"{root}/")[0] == 404 and answered(f"{root}/{'x' * 22}/")[0] == 404
        assert answered(address, Host="evil.example")[0] == 403
        assert answered(address, Origin="http://evil.example")[0] == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130


@needs_nicegui
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--state", "B=0"], "batch_size = 0; allowed: 1 or more"),
        (["--state", "estimator=x"], "estimator = 'x' is unknown"),
        (["--port", "80"], "port = 80; allowed: 0 for any, or 1024 to 65535"),
        (["--threads", "-1"], "threads = -1"),
        (["nowhere"], "nowhere is not a results folder of rftlab"),
    ],
)
def test_bad_input_is_a_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused("explore", "--no-browser", *arguments) and not list(tmp_path.iterdir())
