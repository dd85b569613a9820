"""Texts without their secrets: for what is written down, and for errors that quote others.

A secret is known by its own shape (a key of a provider, a private key, a password in a URL), or by the name that stands
before it, in whichever notation: JSON, also inside of a text; `NAME=value`; a parameter of a URL; a header; an option
of a command. What only looks like one stays readable: counts, names of variables, calls, placeholders, sentences. Every
step takes linear time, and taking secrets out twice changes nothing more.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from journeyman.errors import words_of
from journeyman.machine.environment import SECRET_WORDS
from journeyman.machine.secret_keys import key_pattern, may_hold_key
from journeyman.tools.known_secrets import MARK, known_secrets, refuse_short
from journeyman.tools.secret_codes import mark_codes
from journeyman.tools.secret_places import columns, places_by_notation, shadow_of, words_in

# Each with one group: what stays in front of the secret.
_SHAPES: Final = tuple(
    (needed, re.compile(pattern, re.DOTALL | (re.IGNORECASE if is_any_case else re.NOFLAG)))
    for needed, pattern, is_any_case in (
        (
            ("-----begin",),
            r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?!\[redacted\]).*?(?=-----END|$)",
            False,
        ),
        (("bearer",), r"(\bbearer[ \t]+)(?=[a-z._~+/=-]*+\d)[\w.~+/=-]{8,}", True),
        (
            ("://", "@"),
            r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]*+://[^\s/:@\"'\\]*+:)(?!\[redacted\]@)[^\s/@\"'\\]++(?=@)",
            True,
        ),
        (("hooks.slack.com",), r"(\bhooks\.slack\.com/(?:services|workflows)/)[\w/-]{8,}", True),
        (("api/webhooks",), r"(\bdiscord(?:app)?\.com/api/webhooks/)[\w/-]{8,}", True),
        (("api.telegram.org/bot",), r"(\bapi\.telegram\.org/bot)\d+:[\w-]{20,}", True),
    )
)

_Sureness: TypeAlias = Literal["sure", "likely"]
"""`sure`: whatever is called so is a secret. `likely`: if it looks like one, too."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLAIN_KEYS: Final = _words(
    "primary foreign sort partition cache public row hot short object composite unique index group range hash order map"
    " dict json natural surrogate lookup search i18n translation message locale idempotency routing dedup event config"
    " feature field s3 storage bucket registry arrow enter escape shift control function modifier metric label grouping"
    " shard join sorting column cursor data musical piano answer house host known"
)
_PLAIN_TOKENS: Final = _words(
    "next page continuation cursor sync prev previous max min n num total stop start end eos bos pad unk sep cls mask"
    " special first last input output word per json syntax current lookahead delimiter parse cancellation cancel"
    " prompt completion reasoning"
)
_LONGEST_NAME: Final = 128
_WHOLE: Final[dict[str, _Sureness | None]] = {"TOKEN": "sure", "Pwd": "sure", "PWD": None}
"""What is told by the very name."""
_ENDINGS: Final = tuple(
    _words(
        "password passwd passphrase secret apikey secretkey accesskey privatekey accountkey authkey encryptionkey"
        " signingkey masterkey sharedkey servicekey licensekey deploykey subscriptionkey securitykey clientkey appkey"
        " functionskey authtoken accesstoken accesstokens authtokens refreshtokens apitokens connectionstring"
        " seedphrase recoveryphrase sessionid sessid webhookurl cardpin simpin userpin resetcode recoverycode"
        " backupcode csrftoken storepass keypass clientassertion samlresponse"
    )
)
"""With what names of secrets end, their words joined."""
_LAST: Final[dict[str, tuple[frozenset[str], _Sureness | None, _Sureness | None]]] = {
    "key": (_PLAIN_KEYS, "likely", None),
    "token": (_PLAIN_TOKENS, "sure", "likely"),
    "pwd": (_words("old"), "sure", "likely"),
    "pass": (_words("by first second single one two did render"), "sure", "likely"),
    **dict.fromkeys(("auth", "sig", "otp", "totp", "csrf", "xsrf"), (frozenset(), "likely", "likely")),
    **dict.fromkeys(("signature", "sid", "dsn", "salt", "hash", "session"), (frozenset(), "likely", None)),
}
"""By the last word of a name: before it, which words take its meaning away; what it says behind another; and alone."""


def sureness(name: str) -> _Sureness | None:
    """Say whether a value of this name is a secret; None if the name says nothing."""
    return _sureness(name) if len(name) <= _LONGEST_NAME else None


@lru_cache(maxsize=1_024)  # one text names the same things again and again
def _sureness(name: str) -> _Sureness | None:
    words = [word.lower() for word in _HUMP.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    if not words or name in _WHOLE:
        return _WHOLE.get(name)
    before, last = words[-2] if len(words) > 1 else "", words[-1]
    if "".join(words).endswith(_ENDINGS) or (last in SECRET_WORDS and last not in _LAST):
        return "sure"
    plain, behind, alone = _LAST.get(last, (frozenset[str](), None, None))
    return None if before in plain else behind if before else alone


_STEMS: Final = (
    *("pass", "secret", "token", "key", "cred", "auth", "cookie", "session", "sessid", "phrase", "webhook", "mnemonic"),
    *("connection", "bearer", "signature", "csrf", "xsrf", "hash", "salt", "assertion", "samlresponse", "code", "pin"),
)
"""Of which a text holds one if it holds a name of a secret, unless that is a short one."""
_SHORT_NAMES: Final = _words("pwd pw psk jwt pat sig otp totp sid dsn")
_HUMPS: Final = _words("Pwd Pw Psk Jwt JWT Pat PAT Sig Otp OTP Totp TOTP Sid SID Dsn DSN")
# Each begins with its capital, which is looked for first: a search for `[a-z0-9]` before it takes six times as long.
_HUMPED: Final = re.compile(rf"(?:{'|'.join(f'{each[0]}(?<=[a-z0-9].){each[1:]}' for each in _HUMPS)})(?![a-z])")
_PLACEHOLDER: Final = re.compile(
    r"\$\{?[A-Za-z_][\w.:]*-?\}?|\$\(.*|\$\{\{.*|\{+[\w.!:]*\}+|%\(\w+\)s|%\w|%\w+%|<[^<>]*>|\[redacted\].*|\[key\].*"
    r"|[*x.\u2022\u2026_?-]+|(?:your|my)[-_ ][\w -]*|insert[-_ ].*|"
    r"(?:sk-)?\.\.\.|secretref:.*|vault:.*|op://.*|file:.*|env:.*|sha\d+[-:].*|!\w+"
    r"|null|none|nil|true|false|undefined|string|str|bytes|int|integer|number|bool|boolean|object|array|any|optional"
    r"|required|missing|invalid|incorrect|wrong|expired|empty|hidden|masked|redacted|unset|set|not|is|are|was|must|the|a"
    r"|an|no|yes|unknown|default|value|text|type|field|header|cookie|prompt|input|basic|bearer|digest|oauth2?|jwt|saml"
    r"|secretstr|self|this|lambda|await|new|if|and|or|in|for|to|of|with|without|should|will|can|may|valid|ok|error",
    re.IGNORECASE | re.DOTALL,
)
_CODE: Final = re.compile(r"(?:await |new |\*\*?|&)?[A-Za-z_$][\w$]*(?:(?:\.|\?\.|::|->)[A-Za-z_$][\w$]*)*+[(\[]")
_DOTTED: Final = re.compile(
    r"(?:self|this|cls|os|process|settings|config|cfg|env|args|options|request|req|ctx|app|"
    r"[a-z_]+)(?:\.[A-Za-z_]\w*)+"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z_]*")
_MIXED: Final = re.compile(r"(?=.*\d)(?=.*[A-Za-z])|(?=.*[a-z][A-Z])(?=.*[A-Z].*[A-Z])|(?=.*[!@#$%^&*+=~:/])|\d{5,}")


def is_secret_value(name: str, value: str) -> bool:
    """Tell whether a value is a secret, by what it is called, and what it looks like."""
    sure = sureness(name)
    text = value.strip()
    if sure is None or not text or is_placeholder(text) or (_NAME.fullmatch(text) and sureness(text) is not None):
        return False
    if sure == "likely":
        return (
            len(text) >= 6
            and " " not in text
            and _MIXED.match(text[:_LONGEST_NAME]) is not None
            and not _DOTTED.fullmatch(text)
        )
    words = {word.lower().strip(".,:?!()") for word in text[:_LONGEST_NAME].split()}
    is_sentence = len(words) > 1 and (text[-1] in ".?!\u2026" or bool(words & _OF_SENTENCES))
    return not is_sentence


_OF_SENTENCES: Final = _words(
    "the a an is are was be to of your my our for must should please enter not with or and password token secret key in"
    " at from if that this it"
)

_HEAD: Final = re.compile(
    r"(?P<name>(?<![\w.$-])(?<!\$\{)[A-Za-z_$.@-][\w.$-]*+|\[\\{0,16}[\"'][\w.-]{1,64}\\{0,16}[\"']\])"
    r"(?:\\{0,16}[\"'`])?(?P<before>\s{0,16})(?P<sign>===?|:=|=>|->|::(?=[ \t])|:(?!:)|=|%3[Dd])"
    r"(?P<after>(?:[ \t\n\v]|\\{1,8}[n\n\v]){0,16})(?:(?:\[|\([ \t]{0,4}(?:[\n\v]|\\{1,8}n))\s{0,16}(?=\\{0,16}[\"']))?"
    r"(?:[rbfuRBFU]{0,2}(?=[\"']))?"
)
_TYPED: Final = re.compile(
    r"&?(?:'\w{1,16} )?[A-Za-z_][\w.<>\[\]|]{0,40}(?: \| [\w.]{1,20})?[ \t]{0,4}=[ \t]{0,4}[rbfuRBFU]{0,2}"
    r"(?=\\{0,16}[\"'])"
)
"""A type between a name and its value: `token: &str = "…"`."""
_BREAK: Final = re.compile(r"[\r\n\v]|\\n")  # the latter as in JSON
_OPENING: Final = re.compile(r"(\\{0,16})(\"{3}|'{3}|[\"'`])")
_BARE: Final = re.compile(r"(?:[^\s\"'`,;&<>|\\]|\\(?![nrtux\"'`\\\s]|$))++")
_FIELDS: Final = re.compile(r"(?:[^\r\n\v\\\"]|(?<==)\"[^\"\r\n\\]*+\"|\\{1,16}[\"'])++")  # inside JSON up to its end
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|negotiate|apikey|key|aws4-hmac-sha256)[ \t]+", re.IGNORECASE)
_OPTION: Final = re.compile(
    r"-(?<![\w-]-)-?(?P<name>[A-Za-z][\w-]{1,60})"
    r"(?:[ \t]{0,4}\\{1,16}[n\n\v]\v?[ \t]{0,16}|[ \t]{1,4}|\\{0,16}[\"'],[ \t\n]{0,16}\\{0,16}[\"'])"
)
_ELEMENT: Final = re.compile(r"(<(?P<name>[A-Za-z][\w:.-]{0,63})(?:\s[^<>]{0,200})?>)(?P<value>[^<>]{1,4096})(?=</)")
_NAMED: Final = re.compile(
    r"\b(?:name|key)\\{0,16}[\"']?\s{0,16}[:=]\s{0,16}\\{0,16}[\"']?"
    r"(?P<name>[A-Za-z_][\w.-]{1,64})\\{0,16}[\"']?\s{0,16},?"
    r"(?:\s|\\{1,16}[nrt]){0,64}\\{0,16}[\"']?value\\{0,16}[\"']?\s{0,16}[:=]\s{0,16}",
    re.IGNORECASE,
)
_SAYING: Final = ("password", "passphrase", "passcode", "secret", "token", "pin", "api key", "aws_secret_access_key")
_SAID: Final = re.compile(
    r"\b(?<!\.)(?P<name>password|passphrase|passcode|secret|token|pin|api key|aws_secret_access_key|aws_session_token)"
    r"(?:[ \t]{1,4}(?:is|was|to|will be|ist|est))?[ \t]{1,4}(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;]{4,})",
    re.IGNORECASE,
)

_PROGRAM_NAMES: Final = (
    *[
        "curl",
        "wget",
        "sshpass",
        "mysql",
        "mysqldump",
        "mysqladmin",
        "mariadb",
        "redis-cli",
        "docker",
        "podman",
        "helm",
        "az",
        "htpasswd",
        "openssl",
    ],
    *["ldapsearch", "mongo", "mongosh", "smbclient", "rclone", "zip", "unzip", "7z", "gpg", "http", "https"],
    *("net use", "snmpwalk"),
)
_SAID_WORDS: Final = tuple([f"{word}{gap}" for word in _SAYING for gap in " \t"])
_SAYING_WORDS: Final = _words("password passphrase passcode secret token pin api aws")
_HTTPIE: Final = frozenset(("http", "https"))
_HTTPIE_CALL: Final = re.compile(r"https?[\s\"'\\]")
"""A program whose name is the beginning of an address."""
_PROGRAM_WORDS: Final = (
    frozenset([each.rpartition("-")[2].split()[0] for each in _PROGRAM_NAMES]) | {"z", "redis"}
) - _HTTPIE
"""Words of which a text holds one if it names such a program."""
_PROGRAMS: Final = re.compile(rf"(?<![\w-])({'|'.join(_PROGRAM_NAMES)})(?=[\s\"'\\])")
_END_OF_COMMAND: Final = re.compile(r"(?<![\\\v])[\n\v]|(?<!\\)\\n|[;|](?!\S)")
_VALUE: Final = r"(?P<quote>\\{0,16}[\"']?)(?P<value>(?!\[redacted\])[^\s\"'`\\;|<>]+)"
_GAP: Final = r"(?:[ \t]{0,4}|[ \t\\\n\v]{1,8}|=|\\{0,16}[\"'],\s{0,16}(?=\\{0,16}[\"']))"
_PAIR: Final = r"(?P<quote>\\{0,16}[\"']?)(?P<user>[^\s:\"'\\]*:)(?P<value>(?!\[redacted\])[^\s\"'\\]+)"
_SHORT_OPTIONS: Final = {
    program: re.compile(rf"(?P<before>(?<![\w-])(?:{options}){_GAP}){value}")
    for programs, options, value in (
        ("curl wget http https", r"-[A-Za-z]*[uUa]|--(?:proxy-)?user|--auth", _PAIR),
        ("smbclient rclone", r"-U|--user", r"(?P<quote>\\{0,16}[\"']?)(?P<user>[^\s%\"'\\]*%)(?P<value>[^\s\"'\\]+)"),
        ("sshpass", r"-p", _VALUE),
        ("mysql mysqldump mysqladmin mariadb", r"-p(?=\S)", _VALUE),
        ("redis-cli", r"-a|--pass", _VALUE),
        ("docker podman helm az mongo mongosh", r"-p(?![ \t]*\d+:)", _VALUE),
        ("ldapsearch", r"-w", _VALUE),
        ("zip unzip 7z", r"-P|-p", _VALUE),
        ("openssl", r"-pass(?:in|out)?[ \t]+pass:", _VALUE),
    )
    for program in programs.split()
}
_COOKIES: Final = re.compile(
    r"((?<![\w-])(?:set-)?cookie2?\\{0,16}[\"']?\s{0,4}:\s{0,4}\\{0,16}[\"']?)(?!\[redacted\])"
    r"(?=[\w.%-]++=)[^\r\n\v\"'\\]++",
    re.IGNORECASE,
)
_CURL_COOKIE: Final = re.compile(
    r"((?<![\w-])(?:-b|--cookie)(?:[ \t]{1,4}|=)\\{0,16}[\"']?)(?!\[redacted\])(?=[\w.%-]++=)[^\r\n\v\"'\\]++"
)


def without_secrets(text: str) -> str:
    """Return a text in which each secret is replaced by a mark: what is known by its text, and what looks like one."""
    text = known_secrets.mark(text)
    # What is encoded may be encoded in something that is.
    return mark_codes(_mark_plain(text), MARK, lambda inner: mark_codes(_mark_plain(inner), MARK, _mark_plain))


def _mark_plain(text: str) -> str:
    plain, lined = shadow_of(text), _lines_of(text)
    lowered = plain.lower()
    words = words_in(lowered)
    for find in _ways_to_look(lowered, words, text):
        marked = _mark_places(text, find(lined))
        if marked is not text:
            text, plain, lined = marked, shadow_of(marked), _lines_of(marked)
    return _mark_places(text, _by_notation(text, plain, words))


def _lines_of(text: str) -> str:
    """Return a text of the same length without the `n` that stands in JSON before the first word of a line: it belongs
    to no word."""
    return text.replace("\\n", "\v\v").replace("\\r", "\v\v").replace("\\t", "  ") if "\\" in text else text


def _ways_to_look(lowered: str, words: frozenset[str], text: str) -> Iterator[_Places]:
    """Give the ways to look for secrets in a text which holds what they need."""
    for needed, shape in _SHAPES:
        if all([word in lowered for word in needed]):
            yield partial(_by_pattern, shape)
    yield _by_key
    if "cookie" in lowered:
        yield partial(_by_pattern, _COOKIES)
    yield from _by_names(lowered, words, text)
    if not words.isdisjoint(_SAYING_WORDS) and any([word in lowered for word in _SAID_WORDS]):
        yield _by_saying
    if not words.isdisjoint(_PROGRAM_WORDS) or (not words.isdisjoint(_HTTPIE) and _HTTPIE_CALL.search(lowered)):
        yield _by_program


def _by_names(lowered: str, words: frozenset[str], text: str) -> Iterator[_Places]:
    """Give the ways to look for what has the name of a secret; none where no such name can be."""
    together = " ".join(words)  # shorter than the text
    is_named = any([stem in together for stem in _STEMS]) or not words.isdisjoint(_SHORT_NAMES)
    if not is_named and _HUMPED.search(text) is None:
        return
    if "</" in text:
        yield _by_element
    if any([sign in lowered for sign in (":", "=", "->", "%3d")]):
        yield _by_head
    if "-" in text:
        yield _by_option
    if "value" in words:
        yield _by_named


def scrub_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which each of `secrets`, and what looks like another, is replaced by a mark."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, MARK)
    return without_secrets(text)


def words_without_secrets(error: BaseException) -> str:
    """Return the class of an error, and its text, without secrets."""
    words = without_secrets(words_of(error))  # alone: the name of the class would stand before it on its line
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


_Places: TypeAlias = Callable[[str], Iterator[tuple[int, int]]]


def _mark_places(text: str, places: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    end = 0
    for start, stop in places:
        if start >= end:
            pieces += [text[end:start], MARK]
            end = stop
    return "".join([*pieces, text[end:]]) if pieces else text


def _by_pattern(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Give what a pattern matches, behind its group if it has one."""
    for found in pattern.finditer(text):
        yield found.end(1) if pattern.groups else found.start(), found.end()


def _by_key(text: str) -> Iterator[tuple[int, int]]:
    return _by_pattern(key_pattern(), text) if may_hold_key(text) else iter(())


def _by_notation(text: str, plain: str, words: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Give the places of secrets in the notations of single programs, in order."""
    found: list[tuple[int, int]] = []
    for name, start, end in places_by_notation(text, plain, words):
        value = text[start:end]
        if MARK not in value and not is_placeholder(value) and (name is None or is_secret_value(name, value)):
            found.append((start, end))
    if not words.isdisjoint(_COLUMNS):
        for name, start, end in columns(text):
            value = text[start:end]
            if _MIXED.match(value) is not None and is_secret_value(name, value):
                found.append((start, end))
    yield from sorted(found)


_COLUMNS: Final = _words("password passwd passphrase secret secrets token tokens apikey api credential credentials")


def _by_head(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of values after a name and a sign: `NAME=value`, `"name": "value"`, `name: value`."""
    done = run_end = 0
    for head in _HEAD.finditer(text):
        name = head["name"]
        if sureness(name) is None or head.start() < done:
            continue
        typed = _TYPED.match(text, head.end()) if head["sign"] == ":" else None
        at = head.end() if typed is None else typed.end()
        if at >= run_end:  # many names may stand in one run of characters, which is looked at once
            run = _BARE.match(text, at)
            run_end = at if run is None else run.end()
        if name.lower().endswith("authorization") and head["sign"] in (":", "="):
            place = _credentials(text, at, run_end)
        else:
            place = _span_of_value(text, head, at, run_end)
        if place is not None:
            done = place[1]
            yield place


def _credentials(text: str, at: int, run_end: int) -> tuple[int, int] | None:
    """Return where the credentials are in an `Authorization` header: behind the scheme, to the end of the text."""
    opening = _OPENING.match(text, at)
    at = at if opening is None else opening.end()
    scheme = _SCHEME.match(text, at)
    at = at if scheme is None else scheme.end()
    if opening is not None:
        end = _end_of_quoted(text, opening)
    else:
        has_fields = scheme is not None and scheme[0][0] in "dDaA"  # `Digest username="…", response="…"`
        found = _FIELDS.match(text, at) if has_fields else _BARE.match(text, at) if scheme is not None else None
        end = run_end if scheme is None else at if found is None else found.end()
    value = text[at : min(end, at + _LONGEST_NAME)]
    is_none = not value or is_placeholder(value) or (scheme is None and opening is None and value.isalpha())
    return None if is_none else (at, end)


def is_placeholder(value: str) -> bool:
    """Tell whether a value only stands for a secret, as `$TOKEN`, `<your key>` or `null` do."""
    value = value[:_LONGEST_NAME]
    return _PLACEHOLDER.fullmatch(value) is not None or _PLACEHOLDER.fullmatch(value.rstrip(")]}")) is not None


def _span_of_value(text: str, head: re.Match[str], at: int, run_end: int) -> tuple[int, int] | None:
    name = head["name"]
    opening = _OPENING.match(text, at)
    if opening is not None:
        start, end = opening.end(), _end_of_quoted(text, opening)
        return (start, end) if is_secret_value(name, text[start:end]) else None
    if (
        _BREAK.search(head["before"] + head["after"])
        or head["sign"] == "->"
        or (name.lower() == "pass" and head["sign"] == ":")
    ):
        return None
    value = text[at : min(run_end, at + _LONGEST_NAME)]
    is_shell = name.isupper() and head[0].endswith("=") and head["before"] == ""
    if not is_secret_value(name, value) or (not is_shell and (_CODE.match(value) or _DOTTED.fullmatch(value))):
        return None
    end = run_end
    while end > at and text[end - 1] in ")]}" and not is_shell:  # those of the text around
        end -= 1
    return (at, end) if is_shell or _is_literal(text, head, value, run_end) else None


def _is_literal(text: str, head: re.Match[str], value: str, end: int) -> bool:
    """Tell whether a value without quotes is one itself, and not a word of a sentence or a name in a program."""
    following = text[end : end + 1]
    is_word = _IDENTIFIER.fullmatch(value.rstrip(")]}.!?:")) is not None
    if not is_word or head["name"].lower().startswith("x-"):
        return value[0] not in "([{" or (len(value) > 2 and value[-1] not in ")]}")
    if head["sign"] == "=" and not head["after"]:
        return not (following == "," or value.endswith((")", "]", "}"))) or head["name"].isupper()
    line = _BREAK.split(text[max(0, head.start() - _LONGEST_NAME) : head.start()])[-1].strip(" \t-#")
    is_alone = line[-1:] in ("", '"', "'") and (not following or following in "\r\n\v\\\"'")
    return is_alone and sureness(head["name"]) == "sure" and not head["name"].lower().endswith(("token", "key"))


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    """Return where a quoted text ends: at a quote that is escaped no deeper than the one that began it, or the line."""
    depth, quote = len(opening[1]), opening[2]
    at = opening.end()
    for found in re.compile(rf"(\\*+)({quote})|[\r\n]").finditer(text, at):
        if found[2] is None:
            return found.start()
        n_escapes = len(found[1])
        if n_escapes <= depth or (depth == 0 and n_escapes % 2 == 0):
            return found.end() - len(quote) - min(n_escapes, depth)
    return len(text)


def _by_element(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of texts within elements of XML: `<password>…</password>`."""
    for each in _ELEMENT.finditer(text):
        if is_secret_value(each["name"], each["value"]):
            yield each.span("value")


def _by_option(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of values of long options: `--password value`."""
    for option in _OPTION.finditer(text):
        if sureness(option["name"]) is None:
            continue
        opening = _OPENING.match(text, option.end())
        start = option.end() if opening is None else opening.end()
        found = _BARE.match(text, start)
        if found is None or found[0][0] == "-" or not is_secret_value(option["name"], found[0]):
            continue
        if opening is not None or option[0].startswith("--") or not _IDENTIFIER.fullmatch(found[0]):
            yield found.span()


def _by_named(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of values whose name is a value itself: `name: API_KEY, value: …`."""
    for named in _NAMED.finditer(text):
        opening = _OPENING.match(text, named.end())
        bare = None if opening is not None else _BARE.match(text, named.end())
        if opening is not None:
            place = opening.end(), _end_of_quoted(text, opening)
        elif bare is not None:
            place = bare.span()
        else:
            continue
        if is_secret_value(named["name"], text[slice(*place)]):
            yield place


def _by_saying(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of secrets in sentences: `the password is …`."""
    for said in _SAID.finditer(text):
        value = said["value"].rstrip(".!?):\\")
        is_mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value) and value[0] not in "=-:(/<[{+$"
        is_quoted = said["quote"] and " is" in said[0]
        if (is_mixed or is_quoted) and not is_placeholder(value) and not _CODE.match(value):
            yield said.start("value"), said.start("value") + len(value)


def _by_program(text: str) -> Iterator[tuple[int, int]]:
    """Give the places of passwords that programs take by an option of their own: `curl -u user:password`."""
    end = 0
    found = [*_PROGRAMS.finditer(text)]
    for program, following in zip(found, [*(each.start() for each in found[1:]), len(text)], strict=False):
        if program.start() < end:
            continue
        stop = _END_OF_COMMAND.search(text, program.end(), following)
        end = following if stop is None else stop.start()
        options = _SHORT_OPTIONS.get(program[1])
        for option in options.finditer(text, program.end(), end) if options is not None else ():
            if not is_placeholder(option["value"]):
                yield option.span("value")
        if program[1] == "curl":
            for cookie in _CURL_COOKIE.finditer(text, program.end(), end):
                yield cookie.end(1), cookie.end()


Secret: TypeAlias = str | re.Pattern[str] | Callable[[str], str]
"""What else to take out: a text, everything that a pattern matches, or a function from a text to a text. Applied to its
own result, the function must change nothing."""

_SHORT: Final = 1_000
_REMEMBERED: Final = 5_000
"""How many texts of at most so many characters are known to be clean."""

_JSON_TEXTS: Final = frozenset({"input_json", "json"})
"""The fields that hold JSON as a text."""


class Redactor:
    """Takes secrets out of texts and JSON: those of `without_secrets`, and more."""

    def __init__(self, more: Sequence[Secret] = (), *, known: bool = True) -> None:
        """With `known=False`, only what `more` says is taken out.

        Raises:
            DefinitionError: a text in `more` is too short.
        """
        refuse_short(more)
        self._more = tuple(more)
        self._known = known
        self._version = 0
        """The version of the known secrets without which short texts were clean."""
        self._clean: set[str] = set()
        """Short texts that hold no secret."""
        self._is_steady = all(isinstance(each, str | re.Pattern) for each in self._more)
        """False: a function of the program may say something else of the same text."""

    def redacted_texts(self, texts: Iterable[str]) -> list[str]:
        """Return each text as `redacted_text` does. Short ones that were clean before are not looked through again."""
        known_secrets.current()
        if known_secrets.version != self._version:
            self._version = known_secrets.version
            self._clean.clear()
        clean, done = self._clean, list[str]()
        if len(clean) > _REMEMBERED:
            clean.clear()
        for text in texts:
            if text not in clean:
                redacted = self.redacted_text(text)
                if redacted == text and len(text) <= _SHORT and self._is_steady:
                    clean.add(text)
                text = redacted
            done.append(text)
        return done

    def redacted(self, value: JsonValue, field: str = "") -> JsonValue:
        """Return `value` without secrets, wherever in it they are. `field`: what it is called."""
        match value:
            case str() | int() if not isinstance(value, bool) and self._known and is_secret_value(field, str(value)):
                return MARK
            case str():
                return self.redacted_json_text(value) if field in _JSON_TEXTS else self.redacted_text(value)
            case dict():
                return {self.redacted_text(key): self.redacted(item, key) for key, item in value.items()}
            case list():
                return [self.redacted(item, field) for item in value]
            case _:
                return value

    def redacted_json_text(self, text: str) -> str:
        """Return a text that holds JSON without the secrets in it: unchanged if there are none."""
        plain = self.redacted_text(text)
        try:
            value: JsonValue = json.loads(text)
        except (ValueError, RecursionError):
            return plain
        if plain != text:  # what stands side by side says more than each alone: `{"name": "API_KEY", "value": …}`
            try:
                value = json.loads(plain)
            except ValueError:
                plain = text
        try:
            redacted = self.redacted(value)
        except RecursionError:
            return self.redacted_text(text)
        return plain if redacted == value else json.dumps(redacted, ensure_ascii=False)

    def redacted_text(self, text: str) -> str:
        """Return `text` without secrets."""
        text = without_secrets(text) if self._known else text
        for secret in self._more:
            match secret:
                case str():
                    text = text.replace(secret, MARK) if secret else text
                case re.Pattern():
                    text = secret.sub(MARK, text)
                case _:
                    text = secret(text)
        return text


def clear_record(record: logging.LogRecord) -> bool:
    """Take secrets out of a record of the log: its message, and the traceback as it would be written. Filters are asked
    before handlers, so no handler sees more."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - of an argument; the handlers will say so, as logging does
        return True
    clear = without_secrets(message)
    if clear != message:
        record.msg, record.args = clear, None
    if record.exc_info and record.exc_info[1] is not None:
        raised = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
        clear = without_secrets(raised)
        if clear != raised:  # the exception itself holds the secret: only its text is handed on
            record.exc_text, record.exc_info = clear, None
    return True


for _name in ("journeyman", "journeyman.progress"):
    logging.getLogger(_name).addFilter(clear_record)
