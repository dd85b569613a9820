"""Which proxy an address is asked through: one reading of the variables, whatever form they were written in."""

import pytest

from journeyman.hosts.proxies import ProxyRefused, find_proxy

PROXY = "http://proxy.corp:8080"
URL = "https://models.example/v1"


def proxy_of(url: str, **variables: str) -> str | None:
    found = find_proxy(url, variables)
    return None if found is None else found.url


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"all_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, "http://other:1"),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, PROXY),
        ({"https_proxy": "", "HTTPS_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": "proxy.corp:8080"}, PROXY),
        ({"HTTPS_PROXY": "proxy.corp"}, "http://proxy.corp"),
        ({"HTTPS_PROXY": f'"{PROXY}"'}, PROXY),
        ({"HTTPS_PROXY": f"' {PROXY} '"}, PROXY),
        ({"HTTPS_PROXY": '""'}, None),
        ({"HTTPS_PROXY": "joe:pa'ss@proxy.corp:1"}, "http://joe:pa'ss@proxy.corp:1"),
        ({"HTTPS_PROXY": "HTTP://proxy.corp:8080"}, PROXY),
        ({"HTTPS_PROXY": "socks5h://[::1]:9050"}, "socks5h://[::1]:9050"),
    ],
)
def test_the_variables_name_the_proxy_in_any_form_that_others_take(
    variables: dict[str, str], proxy: str | None
) -> None:
    assert proxy_of(URL, **variables) == proxy


def test_a_proxy_that_a_request_to_a_cgi_program_names_is_not_asked() -> None:
    assert proxy_of("http://h/", HTTP_PROXY=PROXY, REQUEST_METHOD="GET") is None
    assert proxy_of("http://h/", http_proxy=PROXY, REQUEST_METHOD="GET") == PROXY


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "value",
    [
        *("ftp://proxy.corp:1", "://proxy.corp", "http://", "http://proxy.corp:x", "http://pro xy:1", "http://[::1"),
        *("http://proxy.corp:0", f'"{PROXY}', f"{PROXY}'", "http://joe:pass-word-1@proxy.corp:70000"),
    ],
)
def test_a_variable_that_names_no_proxy_is_blamed_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ProxyRefused, match=rf"^{name} ") as caught:
        find_proxy(URL, {name: value})
    assert "pass-word-1" not in str(caught.value)


# Which entry of NO_PROXY stands for which addresses, and for which not.
EXCEPTIONS: dict[str, tuple[str, str]] = {
    "*": ("https://a.b/", ""),
    "corp": ("https://corp https://a.corp https://A.CORP. https://a.corp:8443", "https://acorp https://corp.org"),
    ".corp": ("https://corp https://a.b.corp", "https://acorp"),
    "*.corp": ("https://corp https://a.b.corp", "https://acorp"),
    "https://gw.corp/": ("https://gw.corp/v1", "https://corp"),
    "gw.corp:8443": ("https://gw.corp:8443", "https://gw.corp https://gw.corp:84"),
    "gw.corp:443": ("https://gw.corp https://a.gw.corp", "http://gw.corp"),
    "10.0.0.0/8": ("https://10.1.2.3 https://[::ffff:10.1.2.3]", "https://11.0.0.1 https://a.10.1.2.3.example"),
    "fd00::/8": ("https://[fd12::1]", "https://[fe80::1] https://10.0.0.1"),
    "192.0.2.7": ("https://192.0.2.7 https://192.0.2.7:81", "https://192.0.2.70"),
    "192.0.2.7:81": ("https://192.0.2.7:81", "https://192.0.2.7"),
    "[2001:db8::1]:81": ("https://[2001:db8::1]:81", "https://[2001:db8::1]"),
    "2001:db8::1": ("https://[2001:db8::1]:81", "https://[2001:db8::2]"),
    "a.org, .b.org  c.org": ("https://a.org https://x.b.org https://c.org", "https://d.org"),
    '"a.org,b.org"': ("https://b.org", "https://c.org"),
    ",": ("", "https://a.org"),
}


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_who_is_asked_directly(variable: str) -> None:
    for entry, (direct, through) in EXCEPTIONS.items():
        variables = {"ALL_PROXY": PROXY, variable: entry}
        assert [url for url in direct.split() if proxy_of(url, **variables) is not None] == [], entry
        assert [url for url in through.split() if proxy_of(url, **variables) is None] == [], entry


def test_this_machine_is_never_asked_through_a_proxy() -> None:
    for url in (
        "http://localhost:11434/v1",
        "http://127.0.0.1:1",
        "http://127.8.9.1",
        "http://[::1]:8000",
        "http://a.localhost",
        "http://0.0.0.0:8000/v1",
    ):
        assert proxy_of(url, ALL_PROXY=PROXY) is None
    for url in ("http://localhost.corp", "http://128.0.0.1"):
        assert proxy_of(url, ALL_PROXY=PROXY) == PROXY


@pytest.mark.parametrize("entry", ["10.0.0.0/99", "corp/8"])
def test_a_network_that_is_none_is_blamed(entry: str) -> None:
    with pytest.raises(ProxyRefused, match=r"^NO_PROXY has "):
        find_proxy(URL, {"ALL_PROXY": PROXY, "NO_PROXY": entry})
