"""Which words of a command line are written: every line is run by a real bash in a home of its own."""

import subprocess

import pytest

from proxy.policy.command_writes import Written, written_words
from proxy.policy.eval_context import EvalContext
from proxy.policy.home import expand_home
from proxy.policy.selectors import SELECTORS
from tests.support.timeouts import PATIENCE

WRITES = [
    "echo x >> ~/.bashrc",
    "echo x > $HOME/.bashrc",
    "echo x >| ~/.bashrc",
    "echo x &>> ~/.bashrc",
    "exec 3<>~/.bashrc; echo new text >&3",
    "cd && echo x >> .bashrc",
    "cd ~; tee -a .bashrc <<< x",
    "echo x | tee ~/.bashrc",
    "echo x | tee /dev/null ~/.bashrc",
    "sed -i s/old/new/ ~/.bashrc",
    "sed -Ei.bak s/old/new/ ~/.bashrc",
    "sed --in-place s/old/new/ ~/.bashrc",
    "sed -n 'w '$HOME/.bashrc other",
    "perl -pi -e s/old/new/ ~/.bashrc",
    "cp other ~/.bashrc",
    "cp dots/.bashrc ~",
    "cp dots/.bashrc ~/",
    "cp -t ~ dots/.bashrc",
    "cp -vt ~ dots/.bashrc",
    "cp --target-directory=$HOME dots/.bashrc",
    "cp --targ=$HOME dots/.bashrc",
    "mv other ~/.bashrc",
    "mv ~/.bashrc gone",
    "mv -t ~ dots/.bashrc",
    "install -m 600 other ~/.bashrc",
    "install -t ~ dots/.bashrc",
    "ln -sf $PWD/other ~/.bashrc",
    "ln -sf ~/.bashrc link; echo x >> link",
    "dd if=other of=$HOME/.bashrc status=none",
    "truncate -s 0 ~/.bashrc",
    "rm ~/.bashrc",
    "sort -o ~/.bashrc other",
    "sort other --output=$HOME/.bashrc",
    "find other -fprint ~/.bashrc",
    "find ~/.bashrc -delete",
    "echo ~/.bashrc | xargs cp other",
    "echo ~/.bashrc | xargs truncate -s 0",
    "f=~/.bashrc; echo x >> $f",
    "for f in ~/.bashrc; do echo x >> $f; done",
    "sh -c 'echo x >> ~/.bashrc'",
    "sh -c 'echo x >> $1' _ ~/.bashrc",
    "env cp other ~/.bashrc",
    "python3 -c \"import os; open(os.path.expanduser('~/.bashrc'), 'a').write('x')\"",
    "awk '{print > \"'$HOME'/.bashrc\"}' other",
    "awk -v f=$HOME/.bashrc 'BEGIN {print 1 > f}' other",
    "tar cf ~/.bashrc other",
    "echo x >> $(echo ~/.bashrc)",
    "echo x >> ~/.bashr?",
    "cat other > >(cat >> ~/.bashrc); wait $!",
    "{ echo x; } >> ~/.bashrc",
    "(echo x) >> ~/.bashrc",
    "while read l; do echo $l; done < other > ~/.bashrc",
    "echo ~/.bashrc | { read f; echo x >> $f; }",
    "echo ~/.bashrc | while read f; do echo x >> $f; done",
    "cat other - <<< x > ~/.bashrc",
    "printf '1i\\nnew\\n.\\nw\\nq\\n' | ed -s ~/.bashrc || echo x >> ~/.bashrc",
    "git config -f ~/.bashrc a.b c || echo x >> ~/.bashrc",
    "split -b 1 other ~/.bash; mv ~/.bashaa ~/.bashrc",
]
READS = [
    "cat ~/.bashrc",
    "cat < ~/.bashrc",
    "source ~/.bashrc",
    ". ~/.bashrc; ls",
    "bash ~/.bashrc",
    "grep -n old ~/.bashrc | head -1",
    "head -n 5 ~/.bashrc > copy",
    "tail ~/.bashrc | tee copy",
    "cp ~/.bashrc copy",
    "cp -t . ~/.bashrc",
    "cp ~/.bashrc dots/",
    "diff ~/.bashrc other; true",
    "sed -n 1p ~/.bashrc",
    "sed s/old/new/ ~/.bashrc > copy",
    "awk '{print $1}' ~/.bashrc",
    "wc -l ~/.bashrc",
    "test -f ~/.bashrc && echo there",
    "[ -f ~/.bashrc ] && . ~/.bashrc",
    "[[ -r ~/.bashrc ]] && echo yes",
    "ls -la ~/.bashrc",
    "stat ~/.bashrc",
    "sort ~/.bashrc",
    "tar czf x.tgz ~/.bashrc",
    "f=~/.bashrc; cat $f",
    "env cat ~/.bashrc",
    "timeout 5 cat ~/.bashrc",
    "stdbuf -o0 cat ~/.bashrc",
    "echo ~/.bashrc | xargs cat",
    "sha256sum ~/.bashrc",
    "echo 'see ~/.bashrc'",
    "while read l; do echo $l; done < ~/.bashrc",
    "find ~/.bashrc -newer other",
]


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".bashrc").write_text(": old\n")
    (tmp_path / "work" / "dots").mkdir(parents=True)
    (tmp_path / "work" / "dots" / ".bashrc").write_text(": new\n")
    (tmp_path / "work" / "other").write_text(": other\n")
    return tmp_path


def changes(line, home):
    """Run `line` in bash, and return whether the home's .bashrc is another one afterwards."""
    file = home / ".bashrc"
    before = (file.read_text(), file.stat().st_ino, file.stat().st_nlink)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=home / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    after = (file.read_text(), file.stat().st_ino, file.stat().st_nlink) if file.exists() else None
    return before != after


def says_written(line, home):
    context = EvalContext({"command": line}, "shell", (str(home),))
    found = SELECTORS["@written"](context)
    named = [path for text in (*found.exact, *found.loose) for path in expand_home(text, (str(home),)) or (text,)]
    whole = str(home / ".bashrc")
    return found.trouble is not None or any(path.replace("?", "c").replace("//", "/") == whole for path in named)


@pytest.mark.parametrize("line", WRITES)
def test_a_line_that_changes_a_file_names_it_as_written(line, home):
    assert changes(line, home)
    assert says_written(line, home)


@pytest.mark.parametrize("line", READS)
def test_a_line_that_reads_a_file_does_not(line, home):
    assert not changes(line, home)
    assert not says_written(line, home)


def test_a_program_that_nobody_knows_may_write_every_word():
    assert written_words("frobnicate", ["-x", "a", "b"]) == Written(frozenset(("-x", "a", "b")))


def test_a_copy_into_a_folder_makes_a_file_there():
    assert written_words("cp", ["-r", "x/hooks", ".git/"]).made == (".git/hooks",)


@pytest.mark.parametrize(
    ("name", "args", "written"),
    [
        ("git", ["log", "--", ".git/hooks"], []),
        ("git", ["init", "--template", "x"], ["init", "--template", "x"]),
        ("tar", ["xf", "a.tar", "-C", "/x"], ["xf", "a.tar", "-C", "/x"]),
        ("tar", ["cf", "a.tar", "x"], ["a.tar"]),
        ("rsync", ["-rt", "a", "b"], ["b"]),
    ],
)
def test_words_of_programs_with_many_uses(name, args, written):
    assert written_words(name, args).words == frozenset(written)
