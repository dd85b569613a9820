"""The environment of this process: who uses it, and which of its variables the programs that it starts are given.

A program gets everything but what looks like a secret; inside of a box only what is known to be harmless.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Collection, Mapping
from functools import cache
from typing import Final

from journeyman.machine.secret_keys import key_pattern

SECRET_WORDS: Final = frozenset(
    (
        *("password", "passwords", "passwd", "passwort", "passphrase", "passcode", "pw", "psk", "mnemonic", "token"),
        *("secret", "secrets", "credential", "credentials", "cred", "creds", "jwt", "pat", "bearer", "authorization"),
        *("cookie", "cookies", "apikey"),
    )
)
"""Words at the end of a name which say that it names a secret, as in `DB_PASSWORD` and `clientSecret`."""
_SECRET_NAME = re.compile(
    # Not the end of MONKEY, TURKEY, DONKEY and HOCKEY, nor KEYBOARD, TOKENIZER, AUTHOR; but AUTHORIZATION.
    r"(?<!MON|TUR|DON|HOC)KEY(?!BOARD|MAP|WORD)|TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|PASSCODE|_PWD\Z|CREDENTIAL"
    r"|AUTH(?!OR(?!IZATION))|PRIVATE|COOKIE|SESSION_?ID|DSN|CONNECTION_?STRING|WEBHOOK"
    rf"|(?:\A|[^A-Z])(?:{'|'.join(sorted(SECRET_WORDS))}|PASS|PIN|OTP|TOTP|SALT|SAS|SIGNATURE)(?=\Z|[^A-Z])",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@"  # a URL with a password
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}"
    r"|\b(?:ghp|gho|ghs|ghu|glpat|github_pat|xox[abprs])[-_][A-Za-z0-9_-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|(?i:\bauthorization\s*[:=]|\bbearer\s+[\w.-]{8,}|\bpassw(?:or)?d[\"']?\s*[:=]|\bsecret[\"']?\s*[:=])"
    r"|\bhooks\.slack\.com/services/"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."  # a signed token
)

QUIET: Final[Mapping[str, str]] = {
    **{"TERM": "dumb", "NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"},
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER"), "cat"),
}
"""What keeps programs from waiting for a person, and from writing for a screen."""


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a secret, by its name or by its value."""
    return _SECRET_NAME.search(name) is not None or holds_secret(value)


def holds_secret(value: str) -> bool:
    """Tell whether there is a secret in the value of a variable, whatever that is called."""
    return _SECRET_VALUE.search(value) is not None or key_pattern().search(value) is not None


PASSED: Final = frozenset(
    (
        # the person and the terminal
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "TMP", "TEMP", "TZ", "TERM"),
        *("COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "CI", "MANPATH"),
        *(
            "LANG",
            "LANGUAGE",
            "LC_ALL",
            "LC_CTYPE",
            "LC_COLLATE",
            "LC_MESSAGES",
            "LC_MONETARY",
            "LC_NUMERIC",
            "LC_TIME",
        ),
        *("LC_ADDRESS", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_NAME", "LC_PAPER", "LC_TELEPHONE", "LOCALE_ARCHIVE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "XDG_STATE_HOME"),
        *("DEBIAN_FRONTEND", "SOURCE_DATE_EPOCH", "DESTDIR", "PREFIX", "OMP_NUM_THREADS", "NPROC"),
        # certificates, as files
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT"),
        *("GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE"),
        # who a commit is by
        *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
        *("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"),
        # C, C++ and make
        *("CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "RANLIB", "STRIP", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"),
        *("LIBS", "MAKE", "MAKEFLAGS", "MAKELEVEL", "PKG_CONFIG", "PKG_CONFIG_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH"),
        *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CMAKE_PREFIX_PATH", "CMAKE_GENERATOR", "CMAKE_BUILD_TYPE"),
        *("CMAKE_BUILD_PARALLEL_LEVEL", "CCACHE_DIR", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"),
        # Python
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "PYENV_ROOT", "PYENV_VERSION", "PYTHONPATH"),
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
        *("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PIP_CACHE_DIR"),
        *("PIP_DISABLE_PIP_VERSION_CHECK", "PIP_REQUIRE_VIRTUALENV", "UV_CACHE_DIR", "UV_PYTHON", "UV_LINK_MODE"),
        # JavaScript
        *("NODE_ENV", "NODE_PATH", "NODE_OPTIONS", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL"),
        *("DENO_DIR", "FNM_DIR", "FNM_MULTISHELL_PATH", "COREPACK_HOME", "npm_config_cache", "npm_config_prefix"),
        # Rust and Go
        *(
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_TERM_COLOR",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
            "RUSTFLAGS",
            "RUSTC",
        ),
        *("RUSTC_WRAPPER", "RUSTDOCFLAGS", "RUST_BACKTRACE", "RUST_LOG", "GOPATH", "GOROOT", "GOBIN", "GOCACHE"),
        *("GOMODCACHE", "GOFLAGS", "GOTOOLCHAIN", "GOOS", "GOARCH", "GOPROXY", "GOSUMDB", "CGO_ENABLED", "GO111MODULE"),
        # the Java world, Ruby, .NET, Haskell, Elixir, and what brings several
        *("JAVA_HOME", "JDK_HOME", "JAVA_TOOL_OPTIONS", "M2_HOME", "MAVEN_HOME", "MAVEN_OPTS", "GRADLE_HOME"),
        *("GRADLE_USER_HOME", "GRADLE_OPTS", "ANDROID_HOME", "ANDROID_SDK_ROOT", "KOTLIN_HOME", "SBT_OPTS"),
        *("GEM_HOME", "GEM_PATH", "RBENV_ROOT", "RBENV_VERSION", "BUNDLE_PATH", "RUBYLIB", "PERL5LIB", "DOTNET_ROOT"),
        *("DOTNET_CLI_TELEMETRY_OPTOUT", "GHCUP_INSTALL_BASE_PREFIX", "STACK_ROOT", "MIX_ENV", "MIX_HOME", "RAILS_ENV"),
        *("ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "NIX_PATH", "NIX_PROFILES"),
        *("HOMEBREW_PREFIX", "HOMEBREW_CELLAR", "HOMEBREW_REPOSITORY"),
    )
)
"""The variables that a command gets inside of a box: what shells, compilers and package managers need, and what says
nothing about the person but their name. Where files lie may be said, what opens a door may not."""


def select_environment(keep: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of this process that pass into a box: those that are known by their name to be harmless,
    unless their value is a secret, and those that shall be kept."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep or (name in PASSED and not holds_secret(value))
    }


def filter_environment(keep: Collection[str]) -> dict[str, str]:
    """Return the environment of this process without its secrets, but with those that shall be kept."""
    return {name: value for name, value in os.environ.items() if name in keep or not is_secret(name, value)}


@cache
def somebody() -> str:
    """Return who uses this program, as far as the system tells."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, the user may be a number without a name.
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
