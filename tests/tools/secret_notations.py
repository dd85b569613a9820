"""More texts with secrets, made anew with each seed, and texts that only look like it.

A secret stands between « and ». In braces stands what is chosen by chance: `{a20}` are 20 letters and digits, `{h}`
digits of hex, `{l}` small letters and digits, `{u}` capitals and digits, `{d}` digits, `{w}` letters, digits, `_` and
`-`, `{b}` characters of base64, `{x}` a name of somebody.
"""

import re
from base64 import b64encode, urlsafe_b64encode
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final
from urllib.parse import quote

_KINDS: Final = {
    **{"a": ascii_letters + digits, "h": "0123456789abcdef", "l": ascii_lowercase + digits, "d": digits},
    **{"u": ascii_uppercase + digits, "w": ascii_letters + digits + "_-", "b": ascii_letters + digits + "+/"},
}
_PEOPLE: Final = ("ada", "grace", "alan", "edsger", "barbara")

KEYS: Final = """
sk-proj-{w74}T3BlbkFJ{w74}
sk-svcacct-{a20}9{w40}
sk-ant-api03-{w93}AA
sk-ant-oat01-{w93}AA
sk-or-v1-{h64}
sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}
pplx-{a48}
gsk_{a52}
xai-{a80}
csk-{l48}
fw_{a24}
tgp_v1_{w43}
nvapi-{w64}
hf_{a34}
r8_{a37}
pcsk_{a6}_{a63}
tvly-dev-{a32}
fc-{h32}
jina_{a60}
rpa_{u46}
e2b_{h40}
apify_api_{a36}
lsv2_pt_{h32}_{h10}
lsv2_sk_{h32}_{h10}
AKIA{u16}
ABSK{b120}
AIza{w35}
1//0{w60}
GOCSPX-{w28}
ya29.{w120}
ghp_{a36}
github_pat_{a22}_{a59}
ghs_{a36}
glpat-{w20}
glsa_{a32}_{h8}
glrt-{w20}
gldt-{w20}
GR1348941{w20}
xoxb-{d12}-{d13}-{a24}
xoxe.xoxp-1-{a60}
xapp-1-A{u10}-{d13}-{h64}
ATATT3xFfGF0{w170}
ATBB{a32}
lin_api_{a40}
ntn_{a46}
secret_{a43}
pat{a14}.{h64}
figd_{w40}
CFPAT-{w43}
tfp_{a44}_{a14}
pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}
shpat_{h32}
sk_live_{a24}
rk_live_{a99}
whsec_{a32}
sq0atp-{w22}
sq0csp-{w43}
rzp_live_{a14}
access-production-{h8}-{h4}-{h4}-{h4}-{h12}
FLWSECK_TEST-{h32}-X
EZAK{a54}
shippo_live_{h40}
duffel_live_{w43}
SG.{w22}.{w43}
key-{h32}
xkeysib-{h64}-{a16}
re_{a8}_{a24}
{h32}-us12
SK{h32}
dop_v1_{h64}
doo_v1_{h64}
HRKU-AA{w58}
nfp_{a36}
rnd_{a32}
fo1_{w43}
sbp_{h40}
sb_secret_{w31}
pscale_tkn_{w43}
pscale_pw_{w43}
napi_{l64}
mdb_sa_sk_{w40}
dapi{h32}
npm_{a36}
pypi-AgEIcHlwaS5vcmc{w120}
rubygems_{h48}
oy2{l43}
dckr_pat_{w27}
cio{a32}
CLOJARS_{l60}
AKCp{a69}
hvs.{w92}
hvb.{w140}
{a14}.atlasv1.{w67}
pul-{h40}
dp.pt.{a43}
dp.st.prd.{a43}
ops_eyJ{a250}
tskey-auth-{a12}CNTRL-{a32}
{d10}:AA{w33}
M{a23}.{a6}.{w38}
EAA{a120}
sntrys_eyJ{a80}_{a43}
sntryu_{h64}
NRAK-{u27}
dt0c01.{u24}.{u64}
glc_eyJ{a80}
phx_{a43}
sdk-{h8}-{h4}-{h4}-{h4}-{h12}
CCIPAT_{a22}_{h40}
bkua_{h40}
sqp_{h40}
PMAK-{h24}-{h34}
sgp_{h40}
pnu_{l36}
rdme_{l70}
sha256~{w43}
LTAI{a20}
AKID{a32}
{a3}8Q~{a34}
sk.eyJ{a60}.{w22}
eyJ{a30}.eyJ{a80}.{w43}
AGE-SECRET-KEY-1{u58}
xprv9{a106}
signkey-prod-{h64}
tr_prod_{a24}
os_v2_app_{l104}
sl.u.{w140}
acme_live_{a32}
"""
"""Keys as their vendors make them; the last is of one that nobody knows."""

FORMS: Final = (
    "the key is {}",
    'client = Client("{}")',
    "  - {}",
    "GET /v1/items?limit=3 failed for {}: 403",
    "X_VALUE='{}'",
    '{"said": "{}"}',
    "<td>{}</td>",
    "{}",
)

NOTATIONS: Final = (
    # Authorization, everywhere
    "Authorization: SSWS «00{w40}»",
    "Authorization: Splunk «{h8}-{h4}-{h4}-{h4}-{h12}»",
    "Authorization: GenieKey «{h8}-{h4}-{h4}-{h4}-{h12}»",
    "authorization: Token token=«{h32}»",
    "Authorization: Bot «{a24}»",
    "curl -H 'authorization: ApiKey «{b40}==»' https://api.example.org",
    'http POST api.example.org Authorization:"Bearer «{a24}»"',
    'headers = {{"Authorization": f"Bearer «{a24}»"}}',
    'req.Header.Set("Authorization", "Bearer «{a24}»")',
    'proxy_set_header Authorization "Basic «{b20}==»";',
    'authorization = "Bearer «{a24}»"',
    "> authorization: Basic «{b20}==»",
    "-H=Authorization:Bearer «{a24}»",
    # shells
    "set -x API_TOKEN «{a24}»",
    "setenv DB_PASSWORD «{l12}»",
    "ENV API_KEY «{a24}»",
    'declare -x SMTP_PASSWORD="«{l12}»"',
    '$env:API_KEY="«{a24}»"',
    "kubectl create secret generic db --from-literal=password=«{l12}»",
    'gh secret set DEPLOY_TOKEN --body "«{l24}»"',
    "echo «{l12}» | sudo -S apt-get update",
    "echo '{x}:«{l12}»' | chpasswd",
    "sqlcmd -S db -U sa -P «{l12}»",
    "lftp -u {x},«{l12}» ftp.example.org",
    "mosquitto_pub -u {x} -P «{l12}» -t a -m b",
    "mongodump -u {x} -p «{l12}» --db a",
    "keytool -list -keystore a.jks -storepass «{l12}»",
    "ssh-keygen -t ed25519 -N '«{l12}»' -f key",
    "xfreerdp /u:{x} /p:«{l12}» /v:host",
    "redis-cli AUTH «{l12}»",
    "net user {x} «{l12}» /add",
    'ConvertTo-SecureString "«{l12}»" -AsPlainText -Force',
    "curl --oauth2-bearer «{a24}» https://api.example.org",
    "wget --header='X-Auth-Token: «{a24}»' https://a.example",
    "tool --password \\\n  «{l12}» run",
    'docker login -u {x} --password "«{l12}»" registry.example',
    # files
    "machine api.example.org\n  login {x}\n  password «{l12}»",
    "machine a.example login {x} password «swordfish»",
    "db.example.org:5432:shop:{x}:«{l12}»",
    '//npm.example.org/:_password="«{b20}==»"',
    "[pypi]\nusername = __token__\npassword = «{l30}»",
    ":rubygems_api_key: «{l40}»",
    "requirepass «{l14}»",
    "userPassword:: «{b16}==»",
    "ansible_become_pass: «{l12}»",
    "ansible_ssh_pass=«{l12}»",
    'psk="«{l14}»"',
    "client-key-data: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlF{b60}»",
    '"client-key-data": "«LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1JSUV{b60}»"',
    "password: |\n  «{l12}»\nport: 1",
    "password: >-\n  «{l12}»\n",
    "[database]\n\"password\" = '«{l12}»'",
    'variable "db_password" {{\n  default = "«{l12}»"\n}}',
    "username {x} password 7 «{u16}»",
    "enable secret 5 «$1${a8}${a22}»",
    ".example.org\tTRUE\t/\tTRUE\t1893456000\tsessionid\t«{l32}»",
    "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n«{b44}»\nPrivate-MAC: {h64}",
    "{x}:«$6${a8}${a86}»:19000:0:99999:7:::",
    "{x}:«$apr1${a8}${a22}»",
    "user,password\n{x},«{l12}»",
    "aws_session_token = «IQoJb3JpZ2luX2Vj{b100}»",
    '{{"kty": "OKP", "crv": "Ed25519", "x": "{w43}", "d": "«{w43}»"}}',
    # connection strings, addresses
    "jdbc:oracle:thin:{x}/«{l12}»@//db.example.org:1521/x",
    "jdbc:postgresql://db/x?user={x}&password=«{l12}»&ssl=true",
    "DRIVER={{ODBC Driver 18}};SERVER=db;UID=sa;PWD=«{l12}»;Encrypt=yes",
    "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b43}=»",
    "amqps://{x}:«{l12}»@mq.example.org:5671/%2f",
    "git clone https://«{a30}»@github.com/a/b.git",
    "git clone https://oauth2:«{w20}»@gitlab.com/a/b.git",
    "https://«{h32}»@o123.ingest.sentry.io/456",
    "sftp://{x}:«{l12}»@files.example.org/a",
    "cloudinary://{d15}:«{w27}»@demo",
    "sqlplus {x}/«{l12}»@db",
    "https://a.webhook.office.com/webhookb2/«{h8}-{h4}-{h4}-{h4}-{h12}@{h8}/IncomingWebhook/{h32}»",
    "https://hooks.zapier.com/hooks/catch/«{d7}/{l7}»/",
    "https://maker.ifttt.com/trigger/a/with/key/«{w43}»",
    "otpauth://totp/a:{x}?secret=«{u32}»&issuer=a",
    "https://a.example/cb?state=1&code=«{w40}»",
    "https://b.s3.amazonaws.com/k?X-Amz-Security-Token=«IQoJb3{a60}»&X-Amz-Expires=60",
    "https://maps.example/api?q=a&key=«{w39}»",
    "https://a.example/f?sv=2022-11-02&se=2026&sr=b&sig=«{a30}%2B{a12}%3D»",
    "POST grant_type=refresh_token&refresh_token=«{w60}»&client_id=a",
    "client_assertion=«{w80}»&scope=a",
    # cookies
    "set-cookie: connect.sid=«s%3A{w32}.{a43}»; Path=/",
    'document.cookie = "sessionid=«{l32}»; path=/"',
    "cookies = {{'csrftoken': '«{a32}»'}}",
    "Cookie: «JSESSIONID={u32}; a=b»",
    # databases
    "CREATE USER {x} IDENTIFIED BY '«{l12}»';",
    "ALTER ROLE {x} WITH LOGIN ENCRYPTED PASSWORD '«{l12}»';",
    "SET PASSWORD FOR '{x}'@'%' = '«{l12}»';",
    'db.createUser({{user: "{x}", pwd: "«{l12}»", roles: []}})',
    # in programs
    "const client = new Client({{ user: 'a', password: '«{l12}»' }});",
    'password := "«{l12}»" // of {x}',
    'private static final String PASSWORD = "«{l12}»";',
    '@Value("${{db.password:«{l12}»}}")',
    "'DB_PASSWORD' => env('DB_PASSWORD', '«{l12}»'),",
    'os.environ.setdefault("API_KEY", "«{a24}»")',
    "os.environ['API_KEY'] = \\\n    '«{a24}»'",
    'monkeypatch.setenv("API_TOKEN", "«{a24}»")',
    'password = (\n    "«{l12}»"\n)',
    'auth=("{x}", "«{l12}»")',
    "login(user='{x}', password = r'«{l12}»')",
    'let token: &str = "«{a24}»";',
    'char *api_key = "«{a24}»";',
    'API_KEY: str = "«{a24}»"',
    "define('DB_PASSWORD', '«{l12}»');",
    '#define WIFI_PASSWORD "«{l12}»"',
    # split, quoted, escaped
    'key = ("sk-ant-api03-"\n       "«{a40}»")',
    "password=&quot;«{l12}»&quot;",
    '{{\\"a\\": {{\\"password\\": \\"«{l12}»\\"}}}}',
    "password\\u003d\\u0022«{l12}»\\u0022",
    "api_key%3D«{a24}»%26b%3Dc",
    "%7B%22password%22%3A%22«{l12}»%22%7D",
    "-----BEGIN RSA PRIVATE KEY-----\\n«{b64}»\\n{b64}\\n-----END RSA PRIVATE KEY-----",
    "> -----BEGIN PRIVATE KEY-----\n> «{b64}»\n> -----END PRIVATE KEY-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\r\n«{b64}»\r\n-----END ENCRYPTED PRIVATE KEY-----",
    # said
    "The password for {x} is «{l12}».",
    "Use «{l12}» as the password.",
    "Passwort: «{l12}»",
    "mot de passe : «{l12}»",
    "PIN: «{d6}»",
    "your one-time code is «{d6}»",
)

ENCODED: Final = (
    ("b64", "password={l12}"),
    ("b64", '{{"api_key": "{a24}", "user": "{x}"}}'),
    ("b64", "postgres://{x}:{l12}@db/a"),
    ("b64url", '{{"token": "ghp_{a36}"}}'),
    ("b64", "-----BEGIN EC PRIVATE KEY-----\n{b64}\n-----END EC PRIVATE KEY-----\n"),
    ("url", "postgres://{x}:{l12}@db.example.org/a"),
    ("url", "https://a.example/?api_key={a24}&b=c"),
    ("hex", "API_TOKEN={a24}"),
)


def make_text(template: str, chosen: Random) -> str:
    """Return a text by its template."""

    def of_kind(found: re.Match[str]) -> str:
        if found[1] == "x":
            return chosen.choice(_PEOPLE)
        size = int(found[2])
        text = "".join(chosen.choices(_KINDS[found[1]], k=size))
        # Most that are made by chance have both, and so has each here.
        return (
            text
            if found[1] in "dh" or size < 3
            else f"{text[:-2]}{chosen.choice('abcdef' if found[1] != 'u' else 'ABCDEF')}{chosen.choice(digits)}"
        )

    marked = template.replace("{{", "\0").replace("}}", "\1")
    return re.sub(r"\{([a-z])(\d*)\}", of_kind, marked).replace("\0", "{").replace("\1", "}")


def secrets_of(seed: int) -> list[tuple[str, str]]:
    """Return texts, each with the secret in it."""
    chosen, found = Random(seed), list[tuple[str, str]]()
    for n, template in enumerate(KEYS.split("\n")[1:-1]):
        key = make_text(template, chosen)
        found.append((FORMS[n % len(FORMS)].replace("{}", key), key))
    for template in NOTATIONS:
        marked = make_text(template, chosen)
        secret = re.search("«(.*)»", marked, re.DOTALL)
        assert secret is not None, template
        found.append((marked.replace("«", "").replace("»", ""), secret[1]))
    for way, template in ENCODED:
        plain = make_text(template, chosen)
        encoded = {
            "b64": b64encode(plain.encode()).decode(),
            "b64url": urlsafe_b64encode(plain.encode()).decode().rstrip("="),
            "url": quote(plain, safe=""),
            "hex": plain.encode().hex(),
        }[way]
        found.append((f"GET /cb?state={encoded}&x=1" if way == "url" else f"data: {encoded}\nend", encoded))
    return found


INNOCENT: Final = (
    # digests, ids, versions, lock files
    "commit {h40}",
    "{h7}..{h7}  main -> main",
    "sha256:{h64}",
    "sha512-{b86}==",
    "MD5 (a.iso) = {h32}",
    "{h64}  dist/a-1.2.3.tar.gz",
    'etag: W/"{h32}"',
    "index {h7}..{h7} 100644",
    "{h8}-{h4}-{h4}-{h4}-{h12}",
    'id = "{h8}-{h4}-{h4}-{h4}-{h12}"',
    "trace_id={h32} span_id={h16}",
    "traceparent: 00-{h32}-{h16}-01",
    "x-request-id: {h32}",
    "request_id: req_{a24}",
    "toolu_{a24}",
    "chatcmpl-{a29}",
    "resp_{h48}",
    "run_id: 01J{u23}",
    "image: nginx@sha256:{h64}",
    "pod/api-{l9}-{l5} 1/1 Running",
    "ami-{h17} i-{h17} vpc-{h17} sg-{h17}",
    "arn:aws:iam::{d12}:role/deploy",
    "urn:uuid:{h8}-{h4}-{h4}-{h4}-{h12}",
    '    {{ "integrity": "sha512-{b86}==", "resolved": "https://r.example/a/-/a-1.0.0.tgz" }}',
    'checksum = "{h64}"',
    "golang.org/x/text v0.3.7 h1:{b43}=",
    "a==1.2.3 --hash=sha256:{h64}",
    '{{ url = "https://files.example/a-1.0-py3-none-any.whl", hash = "sha256:{h64}", size = {d5} }}',
    'nixpkgs.narHash = "sha256-{b43}="',
    'rev = "{h40}"',
    "BUILD_ID={h20}",
    "GITHUB_SHA={h40}",
    "CI_COMMIT_SHA={h40}",
    "revision: {h40}",
    "cache-{l12}-{h16}.json",
    "assets/index-{a8}.js",
    "main.{h8}.chunk.css",
    "data-v-{h8}",
    "css-{l7}-container",
    "_{a6}__{a8}",
    "data:image/png;base64,iVBORw0KGgo{b120}",
    "data:font/woff2;base64,d09GMgABAAAAA{b200}",
    '<img src="data:image/gif;base64,R0lGODlhAQAB{b60}">',
    '"data": "iVBORw0KGgoAAAANSUhEUg{b100}"',
    "ssh-rsa AAAAB3NzaC1yc2E{b200} {x}@host",
    "-----BEGIN CERTIFICATE-----\nMIID{b60}\n{b64}\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB{b60}\n-----END PUBLIC KEY-----",
    "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t{b60}",
    "SHA256:{b43} {x}@host (ED25519)",
    "pk_live_{a24}",
    "pk_test_{a24}",
    "phc_{a43}",
    "sb_publishable_{a31}",
    "G-{u10} UA-{d8}-1",
    'client_id = "{d12}-{l32}.apps.example.com"',
    "AccessKeyId in the log",
    "DOI 10.1000/{d6} ISBN 978{d10}",
    "IBAN DE{d20}",
    "call +49 30 {d7}",
    "0x{h40}",
    "block {d8} hash 0x{h64}",
    "#{h6} rgb(1, 2, 3)",
    "v1.2.3-rc.4+build.{h7}",
    "2026-11-27T18:20:{d2}.{d6}Z",
    "latitude 52.{d6}, longitude 13.{d6}",
    "part {d3} of {d4}: {d2}%",
    # code
    "token = next(tokens)",
    'token = request.headers.get("Authorization")',
    "token = parser.tokens[index + 1]",
    "const token = await getAccessToken(user);",
    "var e=n(12),t=function(t){{return t.token===e.key&&t.value}};",
    "!function(e,t){{e.exports=t(n(1))}}(this,(function(e){{return e.token}}));",
    "function a(b,c){{var d=b.key,e=c[d];return e?e.secret:null}}",
    'if (token === null) throw new Error("no token");',
    "let (token, rest) = text.split_at(at);",
    "token: Token,",
    "token: Option<String>,",
    "token: string;",
    "password?: string | undefined;",
    'def login(user: str, password: str = "") -> None:',
    "def f(token: str | None = None) -> str:",
    "api_key: str | None = None",
    "password: str = field(repr=False)",
    "password: str = Field(min_length=8)",
    'secret: SecretStr = SecretStr("")',
    "auth=(user, password)",
    "auth=(USER, PASSWORD)",
    "auth = (config.user, config.password)",
    'setenv("PATH", "/usr/bin:/bin")',
    'monkeypatch.setenv("API_KEY", key)',
    'monkeypatch.delenv("API_KEY", raising=False)',
    'os.environ.get("API_TOKEN", "")',
    "os.getenv('DB_PASSWORD', default)",
    "env('APP_KEY'),",
    "process.env.API_KEY",
    'System.getenv("API_KEY")',
    "${{API_KEY}} ${{API_KEY:-}} ${{DB_PASSWORD:?not set}}",
    "${{{{ secrets.NPM_TOKEN }}}}",
    "password: ${{{{ secrets.DB_PASSWORD }}}}",
    "token: {{{{ token }}}}",
    "{{{{ .Values.auth.password }}}}",
    "valueFrom: {{secretKeyRef: {{name: db, key: password}}}}",
    "password: !vault |",
    'password: {{ "type": "string" }}',
    '"token": {{"type": "string", "format": "password"}}',
    '["password", "email", "user_id2"]',
    'fields = ("token", "created_at", "user")',
    'assert ("password", "required") in errors',
    'messages.get("password", "Password")',
    't("login.password", "Password")',
    'label("api_key", "API key")',
    'form.add("password", "at least 8 characters")',
    'variable "db_password" {{\n  type = string\n  sensitive = true\n}}',
    'variable "token" {{ description = "the token of a user" }}',
    "self._token = token",
    "tokens: list[str] = []",
    "n_tokens = len(tokens) + 12",
    "max_tokens=4096, temperature=0.2",
    'TOKEN_PATTERN = re.compile(r"[a-z0-9]+")',
    "case Token.NAME | Token.NUMBER:",
    "class Secret(Protocol):",
    "key=lambda pair: pair[1]",
    "sort_keys=True, indent=2",
    "primaryKey: 'id2'",
    "hash = hashlib.sha256(data).hexdigest()",
    "signature = inspect.signature(function)",
    "session = Session(engine)",
    "cookies = response.cookies",
    "SELECT token, password_hash FROM users WHERE id = {d4}",
    "CREATE USER {x} IDENTIFIED EXTERNALLY",
    "GRANT SELECT ON a TO {x}",
    "COMMENT ON COLUMN users.password IS 'argon2'",
    "enum Key {{ A1 = 1, B2 = 2 }}",
    "#define KEY_ENTER 13",
    "#define TOKEN_MAX 128",
    "#ifndef SECRET_H",
    "std::string token = lexer.next();",
    "auto key = map.find(name);",
    "Token::Type type = token->type();",
    "pub fn token(&self) -> &str {{",
    "use secrets::{{Vault, Key}};",
    "import {{ token }} from './tokens';",
    "export const API_KEY_HEADER = 'x-api-key';",
    "from tests.tools.secret_texts import SECRETS",
    # names of tests and files
    "tests/auth/test_token_refresh_2024.py::test_password_is_required PASSED",
    "test_api_key_is_not_logged[case-12]",
    "src/secrets/password_reset_token.py:12:3: error: unused",
    "main.c:1200:5:warning:unused",
    "a.py:12:3:E501:long",
    "/etc/ssl/private/key.pem",
    "~/.ssh/id_ed25519.pub",
    "docs/how-to/rotate-api-keys.md",
    "node_modules/jsonwebtoken/lib/index2.js",
    "packages/token-bucket/README.md",
    "secrets.yaml.example",
    "fixtures/password-policy-2026.json",
    "https://example.org/reset-password?step=2&lang=en",
    "https://docs.example.org/auth/tokens#refresh-token-v2",
    "https://example.org/search?q=how+to+reset+password",
    "https://example.org/a%20b/c%2Fd?x=%C3%A4",
    "https://example.org/cb?code=200&key=name",
    "https://github.com/a/b/commit/{h40}",
    "https://cdn.example.org/{h32}/a.png?v={d8}",
    "git@github.com:{x}/repo.git",
    "mailto:{x}@example.org?subject=Password",
    "{x}@example.org:22",
    "redis://localhost:6379/0",
    "postgres://localhost:5432/shop",
    "postgres://db.example.org/shop?sslmode=require",
    "docker run -p 8080:80 -u 1000:1000 image:1.2.3",
    "psql -h db -p 5432 -U {x}",
    "ssh -p 2222 -N -L 8080:localhost:80 host",
    "mkdir -p a/b2/c3 && cp -p a1 b1",
    "set -x PATH /usr/local/bin",
    "set -euo pipefail",
    "env PATH=/usr/bin make",
    "ENV NODE_VERSION 20.11.1",
    "ARG TOKENIZERS_VERSION=0.15.2",
    "sudo apt-get install -y gnome-keyring",
    'echo "$PASSWORD" | sudo -S true',
    "echo hello | tee a1",
    "net use",
    # prose about passwords
    "Choose a password with at least 12 characters.",
    "The password is stored as an argon2 hash.",
    "Your password must contain a digit, a letter and a symbol.",
    "We never send your password by mail.",
    "Passwords expire after 90 days.",
    "The token is valid for 3600 seconds.",
    "Set API_KEY to your key before you begin.",
    "Set the secret for production in the settings.",
    "The password for the database is in the vault.",
    "The token for {x} is missing.",
    "Use a passphrase as the password.",
    "Use OAuth2 as your login.",
    "Never use 12345 alone.",
    "A secret of 3 people is none.",
    "the pin of the board, pin 12 of 40",
    "PIN 5 is ground; PIN: see the sheet",
    "exit code: 12345",
    "status code: 2004",
    "error code is 40301",
    "postal code: 10115",
    "the access code review took 2 days",
    "OTP: a one-time pad",
    "Passwort vergessen?",
    "mot de passe oubli\u00e9",
    "Authorization: see chapter 12",
    "Authorization happens before version 2.",
    "authorization: required since 2024",
    "Bearer of news, Basic English",
    "Basic authentication encodes user and password.",
    "the cookie jar: 3 cookies",
    "default login page, password page",
    "password 2.0: what comes after passwords",
    "secret 7 of 10",
    "user,email,created\nada,ada1@example.org,2024-01-02",
    "name,password_policy\nada,strict-12",
    "token,count\nthe,1204\nand,900",
    "| token | count |\n| the | 1204 |",
    "key: |\n  a text\n  of 2 lines",
    "run: |\n  make test12\n  make check",
    "description: >-\n  How tokens are counted in 2026.",
    "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0",
    "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIDEzIGxhenkgZG9ncw==",
    "eyJhIjogMSwgImIiOiBbMSwgMiwgM10sICJjIjogInRleHQifQ==",
    "68656c6c6f20776f726c6420746869732069732061207465737421",
    "caf\\u00e9 na\\u00efve \\u0041\\u0042",
    "a=%7B%22b%22%3A1%7D",
    "Tom &amp; Jerry &quot;quoted&quot; &#39;x&#39;",
    "risk-adjusted-returns-in-2024-and-beyond-report-for-all",
    "sk-learn-contrib-0.24",
    "task-{h8}-{h8}-{h8}",
    "re_compile_all_patterns_2024",
    "key-value-store-2-for-everyone-and-more",
    "secret_name_of_the_database_in_production_2",
    "pat-a-cake-pat-a-cake-bakers-man-12",
    "EAAAAAAA and so on",
    "SKILL and SKELETON",
    "A3-paper, A4-paper",
    "dp.process(dp.steps[0])",
    "sl.append(sl.u.v)",
    "fc-list, fc-cache -f",
    'hf_hub_download(repo_id="a/b", filename="model.safetensors")',
    "nf_conntrack_tcp_timeout_established=86400",
    "access-control-allow-origin: *",
)
"""What only looks like a secret, or talks of one."""


def innocents_of(seed: int) -> list[str]:
    """Return texts without a secret."""
    chosen = Random(seed)
    return [make_text(each, chosen) for each in INNOCENT]
