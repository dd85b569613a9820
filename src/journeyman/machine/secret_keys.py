"""Keys that are known by their own shape: how each vendor begins them, and how they go on.

A key is found where a word begins. The patterns are put together once, by their first letters, when a text is looked
through first: a word that begins like none of them is passed over at once.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_UUID: Final = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_MADE: Final = r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]"
_LEAST: Final = 14
"""The fewest characters of each of these keys."""
# A vendor's word, the beginning as it is written, and a pattern for the rest.
_KEYS: Final = rf"""
models  sk-  ant-[\w-]{{10,}}|or-[\w-]{{20,}}|lf-{_UUID}|(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]*\d[A-Za-z0-9_-]{{16,}}
models  csk-  [a-z0-9]{{30,}}
models  fw_  [A-Za-z0-9]{{20,}}
models  tgp_v1_  [\w-]{{30,}}
models  nvapi-  [\w-]{{40,}}
models  hf_  [A-Za-z0-9]{{30,}}
models  api_org_  [A-Za-z0-9]{{30,}}
models  gsk_  [A-Za-z0-9]{{30,}}
models  xai-  [A-Za-z0-9]{{30,}}
models  pplx-  [A-Za-z0-9]{{30,}}
models  r8_  [A-Za-z0-9]{{30,}}
models  pcsk_  [A-Za-z0-9]{{4,}}_[A-Za-z0-9]{{30,}}
models  jina_  [A-Za-z0-9]{{40,}}
models  rpa_  [A-Z0-9]{{30,}}
models  e2b_  [0-9a-f]{{30,}}
models  esecret_  [\w-]{{20,}}
models  tvly-  (?:dev-|prod-)?[A-Za-z0-9]{{20,}}
models  fc-  [0-9a-f]{{32}}
models  apify_api_  [A-Za-z0-9]{{30,}}
models  lsv2_  (?:pt|sk)_[0-9a-f]{{32}}_[0-9a-f]{{6,}}
models  wandb_v1_  [\w-]{{30,}}
stripe  sk_  (?:live|test)_[A-Za-z0-9]{{10,}}|[A-Za-z0-9]{{16,}}
stripe  rk_  (?:live|test)_[A-Za-z0-9]{{10,}}|[A-Za-z0-9]{{16,}}
stripe  whsec_  [A-Za-z0-9+/=]{{16,}}
amazon  A(?:KIA|SIA|BIA|CCA)  [0-9A-Z]{{16}}
amazon  ABSK  [A-Za-z0-9+/]{{80,}}={{0,2}}
amazon  bedrock-api-key-  [A-Za-z0-9+/=]{{40,}}
google  AIza  [\w-]{{35}}
google  AQ\.  Ab[\w-]{{40,}}
google  GOCSPX-  [\w-]{{20,}}
google  ya29\.  [\w-]{{20,}}
google  1//0  [\w-]{{30,}}
azure  \w{{3}}8Q~  [\w.~-]{{31,36}}
github  gh[pousr]_  [A-Za-z0-9]{{30,}}
github  github_pat_  \w{{22,}}
gitlab  gl  (?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct|wt)-[\w.-]{{20,}}
gitlab  GR1348941  [\w-]{{20,}}
atlassian  AT[AC]TT3  [\w=-]{{40,}}
atlassian  ATBB  [A-Za-z0-9]{{32}}
slack  xox[abceoprs]  [.-][\w.-]{{10,}}
slack  xapp-  \d-[\w-]{{10,}}
linear  lin_  (?:api|oauth)_[A-Za-z0-9]{{30,}}
notion  ntn_  [A-Za-z0-9]{{30,}}
notion  secret_  [A-Za-z0-9]{{40,}}
airtable  pat  [A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}|-(?:na|eu|ap)\d-{_UUID}
figma  fig[dou]r?_  [\w-]{{30,}}
contentful  CFPAT-  [\w-]{{40,}}
typeform  tfp_  [\w-]{{40,}}
shopify  shp(?:at|ca|pa|ss)_  [0-9a-fA-F]{{32}}
square  sq0(?:atp|csp|idp)-  [\w-]{{20,}}
square  EAAA  [\w-]{{60,}}
razorpay  rzp_  (?:live|test)_[A-Za-z0-9]{{14,}}
plaid  access-  (?:sandbox|development|production)-{_UUID}
flutterwave  FLWSECK  (?:_TEST)?-[0-9a-f]{{32}}-X
easypost  EZ[AT]K  [A-Za-z0-9]{{54}}
shippo  shippo_  (?:live|test)_[0-9a-f]{{30,}}
duffel  duffel_  (?:live|test)_[\w-]{{40,}}
paypal  access_token\$  (?:production|sandbox)\$[a-z0-9]{{16}}\$[0-9a-f]{{32}}
sendgrid  SG\.  [\w-]{{16,}}\.[\w-]{{16,}}
mailgun  key-  [0-9a-zA-Z]{{32}}
mailchimp  [0-9a-f]{{32}}  -us\d{{1,2}}(?!\w)
brevo  x(?:keys|smtps)ib-  [0-9a-f]{{64}}-[A-Za-z0-9]{{12,}}
resend  re_  [A-Za-z0-9]{{6,}}_[A-Za-z0-9]{{16,}}
mandrill  md-  [\w-]{{22}}(?!\w)
twilio  SK  [0-9a-f]{{32}}
digitalocean  do[opr]_v1_  [0-9a-f]{{40,}}
cloudflare  v1\.0-  [0-9a-f]{{24}}-[0-9a-f]{{100,}}
cloudflare  cf(?:ut|at|k)_  [\w-]{{30,}}
heroku  HRKU-  [\w-]{{30,}}
netlify  nf[bcopu]_  [A-Za-z0-9]{{30,}}
vercel  vc[aikpr]_  [A-Za-z0-9]{{24,}}
render  rnd_  [A-Za-z0-9]{{20,}}
fly  fo1_  [\w-]{{40,}}
fly  fm[12][ar]?_  [\w+/=-]{{40,}}
supabase  sbp_  (?:oauth_|v0_)?[0-9a-f]{{40}}
supabase  sb_secret_  [\w-]{{20,}}
planetscale  pscale_  (?:tkn|pw|oauth)_[\w.=-]{{30,}}
neon  napi_  [a-z0-9]{{40,}}
mongodb  mdb_sa_  (?:sk|id)_[\w-]{{24,}}
cockroach  CCDB1_  \w{{22}}_\w{{40}}
databricks  d(?:api|ose|kea)  [0-9a-f]{{32}}(?:-\d)?
elastic  essu_  [\w+/=-]{{40,}}
npm  npm_  [A-Za-z0-9]{{36}}
pypi  pypi-  [\w-]{{50,}}
rubygems  rubygems_  [0-9a-f]{{40,}}
nuget  oy2  [a-z0-9]{{43}}
docker  dckr_  (?:pat|oat)_[\w-]{{20,}}
crates  cio  [A-Za-z0-9]{{32}}(?!\w)
clojars  CLOJARS_  [a-z0-9]{{60}}
jfrog  AKCp  [A-Za-z0-9]{{60,}}
jfrog  cmVmdGtu  [A-Za-z0-9]{{50,}}
vault  hv[brs]\.  [\w-]{{20,}}
terraform  [A-Za-z0-9]{{14}}\.atlasv1\.  [\w-]{{50,}}
pulumi  pul-  [0-9a-f]{{40}}
doppler  dp\.  (?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{{2,35}}\.)?[A-Za-z0-9]{{40,}}
onepassword  ops_  eyJ[\w+/=-]{{60,}}
onepassword  A3-  [A-Z0-9]{{6}}-(?:[A-Z0-9]{{5,6}}-?){{4,6}}
age  AGE-SECRET-KEY-1  [0-9A-Z]{{50,}}
tailscale  tskey-  [a-z]+-[A-Za-z0-9]{{8,}}-[A-Za-z0-9]{{20,}}
telegram  \d{{8,10}}:AA  [\w-]{{33}}
discord  [MNO][\w-]{{22,26}}  \.[\w-]{{6}}\.[\w-]{{27,}}
facebook  EAA  [A-Za-z0-9]{{60,}}
twitter  AAAAAAAAAAAAAAAAAAAA  [\w%]{{40,}}
dropbox  sl\.  (?:u\.)?[\w-]{{60,}}
sentry  sntrys_  eyJ[\w+/=-]{{20,}}
sentry  sntryu_  [0-9a-f]{{60,}}
grafana  gl(?:sa|c)_  [\w+/=-]{{30,}}
newrelic  NR(?:AK|JS|II|AA|RA)-  [\w-]{{18,}}
dynatrace  dt0[a-z]\d\d\.  [A-Z0-9]{{24}}\.[A-Z0-9]{{60,}}
honeycomb  hc[abxyz]ik_  [a-z0-9]{{40,}}
posthog  ph[xs]_  [A-Za-z0-9]{{30,}}
launchdarkly  (?:sdk|mob)-  {_UUID}
circleci  CCI(?:PAT|PRJ)_  [\w-]{{50,}}
buildkite  bk(?:ua|ct|pt)_  [0-9a-zA-Z]{{30,}}
sonar  sq[apu]_  [0-9a-f]{{40}}
postman  PMAK-  [0-9a-f]{{24}}-[0-9a-f]{{34}}
sourcegraph  sgp_  (?:[0-9a-f]{{16}}_|local_)?[0-9a-f]{{40}}
prefect  pn[bu]_  [a-z0-9A-Z]{{36}}
readme  rdme_  [a-z0-9]{{60,}}
openshift  sha256~  [\w-]{{43}}
alibaba  LTAI  [A-Za-z0-9]{{14,24}}(?!\w)
tencent  AKID  [A-Za-z0-9]{{32}}
volcengine  AKLT  [\w+/=-]{{40,}}
yandex  AQVN  [\w-]{{35,}}
mapbox  [st]k\.eyJ  [\w-]{{20,}}\.[\w-]{{16,}}
bitcoin  [xyz]prv  [0-9A-Za-z]{{100,}}
nostr  nsec1  [02-9ac-hj-np-z]{{58}}
inngest  signkey-  (?:prod|test|branch)-[0-9a-f]{{40,}}
trigger  tr_  (?:dev|prod|stg|pat)_[A-Za-z0-9]{{20,}}
onesignal  os_v2_  (?:app|org)_[a-z0-9]{{60,}}
adobe  p8e-  [a-z0-9-]{{32}}
asana  [0-2]/\d{{13,16}}  (?:/\d{{13,16}})?:[0-9a-f]{{32}}
pem  LS0tLS1CRUdJTi  (?:BQUk|BSU0EgU|BFQyBQ|BPUEVOU1NI|BFTkNSWVBU|BEU0EgU)[\w+/=]{{20,}}
tokens  eyJ[\w-]{{8,}}  \.eyJ[\w-]{{8,}}\.[\w-]+
anybody  (?!pk[_-])[a-z][a-z0-9]{{1,15}}[_-](?:live|prod|secret|pat|sk|apikey)[_-]  {_MADE}{{24,}}
"""


@cache
def key_pattern() -> re.Pattern[str]:
    """Return the pattern of all keys. They are grouped by how they begin, so that few are tried on a word."""
    grouped: dict[str, list[str]] = {}
    loose: list[str] = []
    for line in _KEYS.strip().splitlines():
        _, beginning, rest = line.split("  ", 2)
        pattern = f"{beginning}(?:{rest})"
        if beginning[0].isalnum():
            grouped.setdefault(beginning[0], []).append(pattern)
        else:
            loose.append(pattern)
    groups = [f"{re.escape(first)}(?:{'|'.join([each[1:] for each in made])})" for first, made in grouped.items()]
    return re.compile(rf"(?<![A-Za-z0-9_-])(?=[\w.$/~:+=-]{{{_LEAST}}})(?:{'|'.join([*groups, *loose])})")


_OUTSIDE: Final = bytes(each if re.match(rb"[\w.$/~:+=%-]", bytes([each])) else 32 for each in range(256))
_BREAK: Final = re.compile("[^A-Za-z0-9_-]")


def long_words(text: str, least: int) -> list[str]:
    """Return the words of a text with so many characters, of all that keys and what is encoded are made of."""
    return [word for word in text.encode("ascii", "replace").translate(_OUTSIDE).decode().split() if len(word) >= least]


def may_hold_key(text: str) -> bool:
    """Tell whether the pattern of keys may match in a text. It is tried where a key may begin in a long word only: that
    takes half the time of a search, and less."""
    begins = key_pattern().match
    return not text.isascii() or any(
        [
            begins(word) or any([begins(word, found.end()) for found in _BREAK.finditer(word)])
            for word in long_words(text, _LEAST)
        ]
    )
