"""Commands for the tests of what a rule forbids, one a line; `⏎` is a newline. `denied` is a program that only notes
that it was called.

`SPELLINGS`, `CONTEXTS` and `HANDED_ON` make commands that run it, most of them in a way that hides it; `INNOCENT` are
everyday commands that do not, and that nobody should be asked about.
"""


def _commands(text: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in text.strip().splitlines()]


SPELLINGS = _commands(
    r"""
denied x
'denied' x
"denied" x
\denied x
d\enied x
den''ied x
den""ied x
de'nie'd x
$'denied' x
$'\x64enied' x
den$()ied x
den${nothing}ied x
${nothing}denied x
"$nothing"denied x
de\⏎nied x
denie[d] x
{denied,x}
d{enied,} x
$BIN/denied x
programs/../$BIN/denied x
X=1 denied x
X=1 Y=$Z denied x
>out denied x
2>&1 denied x
denied 2>&- x
>&-denied x
<&- denied x
$(echo denied) x
`echo denied` x
"$(echo denied)" x
$(printf 'den%s' ied) x
$(tr x d <<< xenie)d x
"""
)
"""Ways to write one command."""

CONTEXTS = _commands(
    r"""
RUN
true; RUN
true && RUN
false || RUN
true | RUN
true |& RUN
true & RUN
true⏎RUN
# it's⏎RUN
(RUN)
{ RUN; }
! RUN
time RUN
time -p RUN
if true; then RUN; fi
if RUN; then :; fi
while RUN; do break; done
for i in 1; do RUN; done
set -- 1; for i do RUN; done
case x in x) RUN;; esac
f() { RUN; }; f
function f { RUN; }; f
coproc RUN⏎wait
echo $(RUN)
echo "$(RUN)"
echo `RUN`
cat <(RUN)
echo x > >(RUN)
echo ${x:-$(RUN)}
x=$(RUN)
a=($(RUN))
echo $(case x in x) RUN;; esac)
cat <<E⏎$(RUN)⏎E
cat <<'E'⏎it's⏎E⏎RUN
cat <<-E⏎	x⏎	E⏎RUN
[[ -n $(RUN) ]]
echo $((`RUN; echo 1`))
select i in a; do RUN; break; done < /dev/stdin <<< 1
until RUN; do break; done
RUN <<< x
"""
)
"""Places where a command, `RUN`, may stand."""

HANDED_ON = _commands(
    r"""
echo 'RUN' > s; chmod +x s; timeout 5 ./s
echo 'RUN' > s; chmod +x s; env X=1 ./s
echo 'RUN' > s; chmod +x s; nice -n 5 ./s
echo 'RUN' > s; chmod +x s; flock lock ./s
echo 'RUN' > s; chmod +x s; exec ./s
echo 'RUN' > s; chmod +x s; command ./s
echo 'RUN' > s; chmod +x s; echo x | xargs ./s
echo 'RUN' > s; chmod +x s; find . -maxdepth 0 -exec ./s ;
y='$'; z='(RUN)'; w="a[$y$z]"; test -v "$w"
y='$'; z='(RUN)'; w="a[$y$z]"; [ -v "$w" ]
y='$'; z='(RUN)'; w="a[$y$z]"; [[ $w -eq 1 ]]
y='$'; z='(RUN)'; w="a[$y$z]"; [[ w -eq 1 ]]
y='$'; z='(RUN)'; w="a[$y$z]"; printf -v "$w" x
y='$'; z='(RUN)'; w="a[$y$z]"; read "$w" <<< x
y='$'; z='(RUN)'; w="a[$y$z]"; declare "$w=1"
y='$'; z='(RUN)'; w="a[$y$z]"; unset "$w"
y='$'; z='(RUN)'; w="$y$z"; echo "${w@P}"
git -C . -c alias.y='!RUN' y
git --config-env=alias.y=V y
git init -q .; git -c user.name=x -c core.editor='RUN' config -e
timeout 5 RUN
timeout -s KILL 5 RUN
timeout --signal=KILL 5 RUN
nice RUN
nice -n 5 RUN
nohup RUN
env RUN
env X=1 RUN
env -i PATH=$PATH CALLS=$CALLS RUN
env -u X RUN
env -S 'RUN'
env -S'RUN'
env --split-string='RUN'
env -vS 'RUN'
setsid -w RUN
setsid --wait RUN
stdbuf -o0 RUN
stdbuf --output=L RUN
chrt -o 0 RUN
taskset 1 RUN
taskset -c 0 RUN
setarch -R RUN
setarch x86_64 -R RUN
linux64 RUN
prlimit --nofile=99 RUN
ionice -c 3 RUN
flock lock RUN
flock lock -c 'RUN'
script -qc 'RUN' /dev/null
script -q -c 'RUN' out
script --command='RUN' -q out
unshare RUN
unshare -r RUN
chroot / RUN
command RUN
builtin command RUN
command -p RUN
exec RUN
exec -a name RUN
exec -c RUN
(exec -l RUN)
eval RUN
eval 'RUN'
eval eval RUN
trap 'RUN' EXIT
trap 'RUN' USR1; kill -USR1 $$
bash -c 'RUN'
bash -ec 'RUN'
bash -O extglob -c 'RUN'
bash -o posix -c 'RUN'
sh -c 'RUN'
sh -c "sh -c 'RUN'"
dash -c 'RUN'
exec bash -c 'RUN'
bash <<< 'RUN'
bash -s <<< 'RUN'
bash << E⏎RUN⏎E
bash <<'E'⏎RUN⏎E
echo 'RUN' | bash
echo 'RUN' | sh
echo 'RUN' | bash -s
printf 'RUN' | bash /dev/stdin
bash <(echo 'RUN')
. <(echo 'RUN')
source /dev/stdin <<< 'RUN'
. /dev/stdin <<< 'RUN'
echo 'RUN' > s; . ./s
echo 'RUN' > s; bash s
echo 'RUN' > s; chmod +x s; ./s
echo 'RUN' | tee s > out; bash s
cat > s <<'E'⏎RUN⏎E⏎sh s
echo RUN | xargs env
echo x | xargs RUN
echo x | xargs -I y RUN
echo x | xargs -n 1 RUN
echo RUN | xargs -t timeout 5
echo denied | xargs -I y y x
echo 'RUN' | xargs -I y bash -c y
xargs -a names RUN 2>&1; echo x | xargs RUN
echo denied | xargs -I y env y
echo x > names; xargs -a names RUN
xargs -a <(echo x) RUN
find . -maxdepth 0 -exec RUN ;
find . -maxdepth 0 -exec RUN {} +
find . -maxdepth 0 -execdir RUN \;
find . -maxdepth 0 -exec sh -c 'RUN' \;
find $BIN -name denied -exec {} x \;
find $BIN -name 'den*' -exec env {} \;
awk 'BEGIN { system("RUN") }'
awk 'BEGIN { "RUN" | getline }'
awk 'BEGIN { print 1 | "RUN" }'
awk -f <(echo 'BEGIN { system("RUN") }')
sed '1e RUN' <<< x
sed -n 'e RUN' <<< x
sed 's/.*/RUN/e' <<< x
sed -e 's/x/y/' -e '1e RUN' <<< x
sed 's|.*|RUN|ge' <<< x
echo 'RUN' | sed e
sed -f <(echo '1e RUN') <<< x
sed --expression='1e RUN' <<< x
sed -n '/x/e RUN' <<< x
sed '$e RUN' <<< x
sed 's,x,RUN,;e RUN' <<< y
python3 -c 'import os; os.system("RUN")'
python3 <<< 'import os; os.system("RUN")'
echo 'import os; os.system("RUN")' | python3 -
perl -e 'system("RUN")'
perl -e 'exec qw(RUN)'
perl -e 'print `RUN`'
echo x | perl -ne 'system("RUN")'
git -c 'alias.y=!RUN' y
git -c core.pager='RUN' -p --version
git -c core.pager='RUN' -p help -a
GIT_PAGER='RUN' git -p help -a
PAGER='RUN' git -p help -a
GIT_SSH_COMMAND='RUN' git ls-remote ssh://h/x
git ls-remote 'ext::RUN'
git init -q; git config alias.y '!RUN'; git y
git init -q .; git bisect run RUN
GIT_EXTERNAL_DIFF='RUN' git diff --no-index a /dev/null
git submodule foreach 'RUN'
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.y GIT_CONFIG_VALUE_0='!RUN' git y
GIT_CONFIG_PARAMETERS="'alias.y=!RUN'" git y
tar cf /dev/null --checkpoint=1 --checkpoint-action=exec='RUN' .
tar cf t . 2> out; tar xf t --to-command='RUN'
tar cf t -I 'RUN' .
tar cf t --use-compress-program='RUN' .
tar cf t . 2>out; tar xOf t --to-comm='RUN'
tar cf t -I'RUN' .
printf 'a:\n\tRUN\n' | make -f -
printf 'a:\n\tRUN\n' > Makefile; make
make -f <(printf 'a:\n\tRUN\n')
echo | make -f - --eval='a:; RUN'
make -f /dev/null 'X=$(shell RUN)'
split --filter='RUN' <<< x
echo x | split -b 1 --filter 'RUN'
echo x | split -l 1 --filter="RUN" -
sort --compress-program='RUN' -S 1K /etc/services
ex -sc '!RUN' -c q
vim -es -c '!RUN' -c q
ssh -o ProxyCommand='RUN' h
ssh -oProxyCommand='RUN' h x
ssh -o KnownHostsCommand='RUN' h
scp -S 'RUN' x h:y
rsync -e 'RUN' x h:y
man -P 'RUN' bash
less '+!RUN' /etc/hosts
/lib64/ld-linux-x86-64.so.2 $BIN/denied x
/lib64/ld-linux-x86-64.so.2 /bin/sh -c 'RUN'
busybox sh -c 'RUN'
alias y='RUN'⏎shopt -s expand_aliases⏎y
shopt -s expand_aliases⏎alias y='RUN'⏎y
BASH_ENV=<(echo 'RUN') bash -c true
echo 'RUN' > s; BASH_ENV=s bash -c :
ENV=s sh -c true
PS4='$(RUN)'; set -x; true
x='$(RUN)'; echo "${x@P}"
x='a[$(RUN)]'; echo $((x))
x='a[$(RUN)]'; [[ x -eq 1 ]]
x='a[$(RUN)]'; let x
declare -i y='a[$(RUN)]'
test -v 'a[$(RUN)]'
printf -v 'a[$(RUN)]' x
read 'a[$(RUN)]' <<< x
unset 'a[$(RUN)]'
x='RUN'; $x
x='RUN'; eval $x
x='RUN'; bash -c "$x"
set -- RUN; "$@"
bash -c '"$@"' name RUN
bash -c '$0 x' denied
f() { "$@"; }; f RUN
x=(RUN); "${x[@]}"
for i in denied; do $i x; done
read x <<< denied; $x
y=denied; x=y; ${!x}
hash -p $BIN/denied y; y x
enable -n echo; RUN
mapfile -C 'RUN' -c 1 <<< x
readarray -C 'RUN' -c 1 <<< x
compgen -C 'RUN'
jobs -x RUN
ln -s $BIN/denied y; ./y x
cp $BIN/denied y; ./y x
PATH=y:$PATH; ln -s $BIN/denied y; y
mkdir b; ln -s $BIN/denied b/y; PATH=b:$PATH y
cp $BIN/denied $BIN/other; other x
(sleep 0; RUN) & wait
RUN & wait
parallel ::: 'RUN'
watch -g -n 0.1 'RUN'
strace -f RUN
ltrace RUN
perf stat RUN
valgrind RUN
gdb -batch -ex 'shell RUN'
su -c 'RUN'
sudo -n RUN
sudo -u root -n RUN
doas RUN
runuser -u root -- RUN
runuser -c 'RUN'
nsenter -t 1 RUN
setpriv --nnp RUN
dbus-run-session RUN
systemd-run RUN
tmux new -d 'RUN'
screen -dm RUN
at now <<< 'RUN'
unbuffer RUN
expect -c 'spawn RUN'
exec 3< <(RUN)
exec > >(RUN)
node -e 'require("child_process").execSync("RUN")'
ruby -e 'system("RUN")'
php -r 'system("RUN");'
lua -e 'os.execute("RUN")'
m4 <<< 'syscmd(RUN)'
ed <<< '!RUN'
fd . -x RUN
fzf --filter x --preview 'RUN'
run-parts --regex . $BIN
start-stop-daemon --start --exec $BIN/denied
logger x | RUN
wait; RUN
busybox denied
coreutils --coreutils-prog=env RUN
pwsh -c 'RUN'
"""
)
"""What runs the command that it is handed, `RUN`, in one way or another."""

SUBCOMMANDS = _commands(
    r"""
denied push
denied -C . push
denied -c a.b=c push
denied -C . -c a.b=c --no-pager push
denied --no-pager push o m
denied --work-tree=. push
denied 'push'
denied pu"sh"
denied $x push
denied -c $x push
x=push; denied $x
denied -- push
env denied -C . push
timeout 5 denied -C . push x
echo push | xargs denied
echo push | xargs denied -C .
bash -c 'denied -C . push'
denied -C . $(echo push)
denied {push,x}
denied \⏎ push
denied -C a -C b -C c push
"""
)
"""Ways to call a subcommand that is denied: `Bash(denied push *)`."""

INNOCENT = _commands(
    r"""
git push -u origin main
git add -u
git stash -u
git clean -xfd
git cherry-pick -x abc
git submodule update --init
git clone https://example.org/x.git sub
git config --list
timeout 60 pytest tests/test_a.py
nice -n 5 ls ./x
env FOO=1 cat ./x
[ -n "$x" ] && ls
[[ -n $x ]] && ls
[[ 3 -gt 2 ]] && ls
read -r line < a
printf '%s' "$x"
unset FOO
export FOO="$x"
ls -la
ls -la | head -5
cd src && ls
git status
git diff HEAD~1 -- src
git log --oneline -5 | cat
git add -A && git commit -m 'Remove the denied; and more'
git commit -m "it's done" -a
git push origin main
git -C sub status
git checkout -b topic
git rebase main
git stash pop
git show HEAD:src/a.py | head -20
git branch -D old
git log --format='%h %s' --since=yesterday
git rm a.txt
git config --get user.name || true
git blame -L 1,5 a.py
git tag -a v1 -m 'first'
git fetch --all --prune
git log --grep='x' --author=me
grep -rn 'denied' src
grep -rn "def foo" --include='*.py' . | wc -l
rg -n 'a|b' src
find . -name '*.py' -not -path './x/*'
find . -type f | sort | uniq -c
find . -name '*.pyc' -delete
find . -name '*.py' | xargs grep -l foo
find . -name '*.py' -exec wc -l {} +
sed -n '1,20p' a.py
sed -i 's/foo/bar/g' a.py
sed -e 's/a/b/' -e 's|c|d|' f
awk '{print $1}' f
awk -F: '{ sum += $2 } END { print sum }' f
cat a.txt
cat <<'EOF' > a.txt⏎Say $(denied) and `denied`⏎EOF
cat > a.py <<'EOF'⏎print('denied')⏎EOF⏎ls
echo hello > a.txt
echo "it is $HOME"
printf '%s\n' a b c
echo 'denied x'
echo denied
mkdir -p a/b && touch a/b/c
cp -r a b
mv a b
rm -rf build
chmod +x run.sh
ln -s a b
tar czf a.tgz src
tar xzf a.tgz -C out
unzip -q a.zip
du -sh * | sort -h
df -h
ps aux | grep python
pytest -q
pytest tests/test_a.py -k 'name and not other' -x
ruff check . && ruff format --check .
mypy src
cargo build --release
cargo test -- --nocapture
go test ./...
pip install -r requirements.txt
pip list | grep -i http
uv sync
docker ps -a
docker build -t x .
docker run --rm x ls
docker compose up -d
kubectl get pods -n x
terraform plan
curl -sSf https://example.org/x | jq '.a'
curl -o f https://example.org
wget -q https://example.org/x
python --version
node --version
bash --version
make --version
which python
command -v denied
type denied
date +%F
sleep 1
kill -9 1234
wc -l a.txt b.txt
diff -u a b
head -c 100 a
tail -f a.log
for f in *.py; do wc -l "$f"; done
for i in 1 2 3; do echo $i; done
if [ -f a ]; then cat a; else echo none; fi
[ -d a ] && echo yes || echo no
[[ -f a && -d b ]] && ls
while read -r line; do echo "$line"; done < a.txt
test -e a || touch a
x=$(date +%s); echo $x
X=1 pytest -q
PYTHONPATH=src pytest
export FOO=bar && pytest
ls > out.txt 2>&1
ls 2>/dev/null | wc -l
ls &> out
(cd a && ls)
{ ls; pwd; } > out
timeout 60 pytest -q
nice -n 5 cargo build
env FOO=1 pytest
nohup cargo run > log 2>&1 &
time pytest -q
time -p ls
xargs -n 1 echo < names
sort a | uniq -c | sort -rn | head
set -e; ls
set -euo pipefail; ls
tee out.txt < a
f() { ls; }; f
! grep -q x a
ls # denied
echo ${HOME}/x
echo ${x:-default}
echo "${files[@]}"
true && false || echo x
cut -d, -f1 a.csv
tr a-z A-Z < a
jq -r '.items[] | .name' a.json
"""
)
"""Everyday commands that do not run it."""
