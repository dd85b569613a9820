"""Thousands of commands that may run the program `denied`, put together from parts by a seed: places in places, a name
or an option hidden in a variable, and names that bash evaluates. Whether one runs it, only a real bash can tell.
"""

import random

from tests.permission.commands import CONTEXTS, HANDED_ON, INNOCENT, SPELLINGS


def _lines(text: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in text.strip().splitlines()]


_SETTING = _lines(
    r"""
x='@';
y='@'; x=$y;
y='@'; x=${y};
: ${x:='@'};
declare x='@';
export x='@';
printf -v x '%s' '@';
x=$(echo '@');
x=`printf '%s' '@'`;
read x <<< '@';
read -r x <<'E'⏎@⏎E⏎
IFS= read -r x < <(printf '%s' '@');
while read -r x; do :; break; done <<< '@';
for x in '@'; do :; done;
echo '@' > v; read -r x < v;
"""
)
"""Ways to set the variable x."""

_NAMED = _lines(
    r"""
$x
"$x"
command $x
builtin command $x
env $x
exec $x
nice -n 1 $x
nohup $x
timeout 5 $x
time $x
eval "$x"
bash -c "$x"
bash -c '$0' $x
echo "$x" | sh
trap "$x" EXIT
xargs $x <<< a
xargs -I{} $x <<< a
find . -maxdepth 0 -exec $x \;
flock f -c $x
awk -v c=$x 'BEGIN { system(c) }'
sed -n "1e $x" f
sed -n -e p -e "1e $x" f
sort -S 1k --compress-program=$x big
sort -S 1k --compress-prog $x big
split --filter=$x f
tar -cf o -I $x f
tar cIf $x o f
tar -cf o --use-compress $x f
git -c alias.z="!$x" z
git -c core.fsmonitor=$x status
git rebase -x $x HEAD~1
git rebase -qx $x HEAD~1
git rebase --exe $x HEAD~1
git clone -qu $x . q
git ls-remote --upload-p=$x .
git push --exe=$x . HEAD:y
git grep -nO$x a
GIT_EDITOR=$x git commit --allow-empty
PAGER=$x git -p log
GREP=$x zgrep a f
ssh -o ProxyCommand=$x h
ssh-agent $x
uv run -q --no-project --offline $x
man -P $x ls
make -f /dev/null SHELL=$x
gcc -wrapper $x -c e.c
install -s --strip-program=$x f g
sqlite3 :memory: ".shell $x"
f() { for a do $x; done; }; f b
case a in *) $x ;; esac
"""
)
"""Commands that run the program whose name is in x."""

_OPTIONS = _lines(
    r"""
sort -S 1k big $x	--compress-program=denied
sort $x -S 1k big	--compress-program=denied
tar -cf o f $x	--use-compress-program=denied
tar $x -cf o f	-Idenied
tar -cf o $x f	-I denied
find . -maxdepth 0 $x	-exec denied ;
find $x	f -exec denied ;
find f -name f $x	-exec denied {} +
git $x	rebase -x denied HEAD~1
git $x status	-c core.fsmonitor=denied
git rebase $x HEAD~1	-x denied
git clone $x . q	-u denied
git grep $x a	-Odenied
sed -n p $x f	-e 1edenied
sed -n -e p f $x	-e1edenied
sed "$x" f	1edenied
awk "$x"	BEGIN{system("denied")}
awk -F : "$x"	BEGIN{system("denied")}
awk -v a=1 "$x"	BEGIN{system("denied")}
split $x f	--filter=denied
xargs $x <<< 1	denied
nice $x	denied
zip -q o.zip f $x	-T -TT denied
[ $x ]	-v a[$(denied)]
test $x	-v a[$(denied)]
printf $x	-v a[$(denied)] 1
declare $x	a[$(denied)]=1
unset $x	a[$(denied)]
read $x <<< 1	a[$(denied)]
wait $x	-p a[$(denied)]
export $x; git -p log	GIT_PAGER=denied
"""
)
"""Commands, each with the option that makes it run the program if it is in x."""

_EVALUATED = _lines(
    r"""
echo ${!x}
echo "${!x}"
echo ${PATH:x}
echo ${PATH:0:x}
echo ${@:x}
set -- a; echo ${1:x}
echo ${b[x]}
echo ${b[@]:x}
echo $((x))
echo $((x+1))
((x))
let x
for ((;x;)); do break; done
[[ x -eq 0 ]]
[[ $x -gt 0 ]]
[[ 1 -eq 1 && x -eq 1 ]]
[[ -n a || x -eq 1 ]]; [[ -z a || x -eq 1 ]]
[[ ! 0 -lt 1 || x -lt 1 ]]
[[ a < b && x -le 0 ]]
[[ -v x ]]
[[ -v $x ]]
[ -v 'b[x]' ]
test -v 'b[x]'
test $x -gt 0
printf -v 'b[x]' 1
printf '%d' x
declare 'b[x]=1'
declare -a 'b=([x]=1)'
declare -i b=x
declare -n r=x; echo $r
readonly 'b[x]=1'
f() { local 'b[x]=1'; }; f
export 'b[x]=1'
b=1; unset 'b[x]'
read 'b[x]' <<< 1
b[x]=1
mapfile -O x b < f
getopts a 'b[x]' -a
sleep 0 & wait -n -p 'b[x]'
case x in $((x))) ;; esac
exit $x
shift $x
ulimit -c $x
kill -0 $x
seq $x
echo {1..$x}
"""
)
"""Commands that may evaluate the name x, or what is in it."""

_INDEX = _lines(
    r"""
read -r x <<'E'⏎a[$(denied)]⏎E⏎
x=$(printf 'a[\44(denied)]');
printf -v x 'a[\44(denied)]';
x=$'a[\x24(denied)]';
x='a[`denied`]';
echo 'a[$(denied)]' > v; read -r x < v;
"""
)
"""Ways to set x to what runs the program when it is evaluated."""

_ALONE = _lines(
    r"""
clean() { for f do denied -rf "$f"; done; }; clean build
ls() { command denied; }; ls -la
false && make() { :; }; printf 'a:\n\tdenied\n' > Makefile; make
docker exec web denied /data
find . -fprintf o '%p' -exec denied ';'
git config --file .git/config alias.y '!denied'; git y
printf '[alias]\n y = !denied\n' >> .git/config; git y
cd .git; echo denied > hooks/post-commit; chmod +x hooks/post-commit; cd ..; git commit -q --allow-empty -m x
d=.gi; echo denied > ${d}t/hooks/post-commit; chmod +x ${d}t/hooks/post-commit; git commit -q --allow-empty -m x
cp s .git/hooks/post-commit; git commit -q --allow-empty -m x
cp -r .git evil; printf '[core]\nfsmonitor=denied\n' >> evil/config; GIT_DIR=evil git status
mkdir -p g/git; printf '[core]\nfsmonitor=denied\n' > g/git/config; XDG_CONFIG_HOME=$PWD/g git status
read GIT_EXTERNAL_DIFF <<< denied; export GIT_EXTERNAL_DIFF; git diff HEAD~1
set -a; GIT_EXTERNAL_DIFF=denied; git diff HEAD~1
for PATH in ./b:$PATH; do ls; done
read PATH <<< "./b:$PATH"; ls
read PS4 <<'E'⏎$(denied)⏎E⏎set -x; :
printf -v PS4 '\44(denied) '; set -x; :
bash -h <<< denied
bash --rcfile f -ic ls
env -S '\_denied'
echo denied | xargs --replace=X sh -c X
echo 1edenied > s; sed -n -e p --fil=s f
mawk -We p
PERLLIB=q json_pp -v
cp $BIN/denied ./ls; PATH=.:$PATH; ls
p=$BIN/denied; cp $p ${p%denied}ls2; ls2
IFS=,; x=denied,a; $x
sed -n '1{e denied⏎}' f
tar cf o f --checkpoint=1 --checkpoint-action=exec=denied
"""
)
"""Commands that no other list has a kind for."""


def make_corpus(seed: int, n_nested: int = 2_200) -> list[str]:
    """Return all pairs of these parts, and as many commands in which places are nested."""
    chosen = random.Random(seed)
    pairs = [f"{setting.replace('@', 'denied')} {use}" for setting in _SETTING for use in _NAMED]
    rows = [row.split("\t") for row in _OPTIONS]
    pairs += [f"{setting.replace('@', option)} {use}" for setting in _SETTING for use, option in rows]
    pairs += [f"{index} {use}" for index in _INDEX for use in _EVALUATED]
    nested: list[str] = []
    while len(nested) < n_nested:
        inner = chosen.choice(HANDED_ON).replace(
            "RUN", chosen.choice(["denied", "denied x", "d\\enied", "command denied"])
        )
        inner = chosen.choice([inner, chosen.choice(SPELLINGS)])
        for _ in range(chosen.choice([1, 1, 2, 3])):
            inner = chosen.choice(CONTEXTS).replace("RUN", inner)
        before = chosen.choice(
            ["", "", f"{chosen.choice(INNOCENT)}\n", "# it's\n", "cat <<'E'\n$(it's E\nE\n", "set -e; "]
        )
        nested.append(f"{before}{inner}")
    corpus = [*pairs, *nested, *_ALONE]
    chosen.shuffle(corpus)
    return corpus
