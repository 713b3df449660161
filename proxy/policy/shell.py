"""Parse a shell command line into the simple commands it would run. Pure, no I/O.

The reader follows POSIX sh and bash. It would rather report a command that never runs than
miss one that does: commands inside pipes, lists, subshells, substitutions and compound
commands are all returned, in one flat list. `problem` says what it could not read.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from proxy.policy.shell_words import Draft, Piece, ShellError, Word, read_ansi_c, read_balanced

MAX_SCRIPT: Final = 65_536
MAX_DEPTH: Final = 16
MAX_SUBSTITUTIONS: Final = 200
# Of a line, with those of the scripts in it.
MAX_COMMANDS: Final = 500
MAX_WORDS: Final = 5000

# After one of these a new command begins, so `then curl x` runs curl.
_KEYWORDS: Final = frozenset(
    ("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "esac", "{", "}", "!", "coproc")
)
# The words behind these are not a command: `for i in x y` runs nothing by itself.
_SWALLOWING: Final = frozenset({"for", "select", "case"})
# The inside of braces that the shell may expand: no blank or operator in it, unless it is quoted.
_BRACES: Final = re.compile(r"""(?:[^\s;&|<>()'"\\}]++|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")*+\}""", re.DOTALL)
_DESCRIPTOR: Final = re.compile(r"\d+|\{\w+\}")
_ARRAY: Final = re.compile(r"\w+(?:\[.*\])?\+?=", re.DOTALL)
_INDEX: Final = re.compile(r"^\[[^\]]*\]\+?=")
# Text that no shell reads as anything but itself, bare and in double quotes.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:,+@%=-]+")
_PLAIN_QUOTED: Final = re.compile(r'[^"\\$`]+')
_NAME: Final = frozenset(string.ascii_letters + string.digits + "_")


class Redirect(NamedTuple):
    """One redirection to or from a file."""

    operator: str
    target: Word


class SimpleCommand(NamedTuple):
    """One simple command: its words, whether a pipe feeds it, and the texts fed to it.

    `after` is the operator before it, `feeds` says where its output goes if the line reads it, and
    `loop` that it is no command but the head of a `for` or `select`.
    """

    words: tuple[Word, ...]
    piped: bool = False
    fed: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    after: str = ""
    feeds: Literal["", "pipe", "substitution", "process"] = ""
    loop: bool = False


class Script(NamedTuple):
    """Every simple command of a script, and whether it writes to a file by redirection."""

    commands: tuple[SimpleCommand, ...]
    problem: str | None = None
    writes: bool = False


# The operators read the same line one after another.
@lru_cache(maxsize=32)
def parse_script(text: str, depth: int = 0) -> Script:
    """Parse a command line; a problem is returned, never raised."""
    reader = _Reader(text, depth)
    try:
        if len(text) > MAX_SCRIPT or depth > MAX_DEPTH:
            raise ShellError("a command too long or too deeply nested")  # noqa: TRY301 - one way out
        reader.read()
    except ShellError as error:
        reader.problem = str(error)
    return Script(tuple(reader.commands), reader.problem, reader.writes)


def parse_substitutions(text: str, depth: int = 0) -> Script:
    """Parse only the substitutions of a text that is no command line: a subscript, a prompt."""
    reader = _Reader(text, depth)
    try:
        if depth > MAX_DEPTH:
            raise ShellError("a command too long or too deeply nested")  # noqa: TRY301 - one way out
        reader.read_substitutions(text)
    except ShellError as error:
        reader.problem = str(error)
    return Script(tuple(reader.commands), reader.problem, reader.writes)


class _Reader:
    def __init__(self, text: str, depth: int) -> None:
        # The shell joins such lines before anything else: `cu\\<newline>rl` runs curl.
        self.text = text.replace("\\\r\n", "").replace("\\\n", "").replace("\r\n", "\n")
        self.depth = depth
        self.at = 0
        self.commands: list[SimpleCommand] = []
        self.problem: str | None = None
        self.writes = False
        self.words: list[Word] = []
        self.taken = 0
        self.fed: list[str] = []
        self.piped = False
        self.parens = 0
        self.cases = 0
        self.draft = Draft()
        self.redirect: str | None = None
        self.redirects: list[Redirect] = []
        self.after = ""
        self.heredocs: list[tuple[str, bool, bool]] = []

    def read(self) -> None:
        while self.at < len(self.text):
            self._next()
        self._end_command(piped=False)
        if self.parens:
            raise ShellError("an unclosed parenthesis")
        if self.heredocs:
            self._read_heredocs()

    def _next(self) -> None:
        plain = _PLAIN.match(self.text, self.at)
        if plain is not None:
            self.draft.put(plain[0], bare=True)
            self.at = plain.end()
            return
        char = self.text[self.at]
        if char in " \t\v\f\r":
            self._end_word()
            self.at += 1
        elif char == "#" and not self.draft.started:
            # Only at the start of a word; `a#b` is one word and hides nothing behind it.
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char in "\n;&|()":
            self._operator(char)
        elif char in "<>":
            self._redirection(char)
        else:
            self._word_char(char)

    def _operator(self, char: str) -> None:
        if char == "&" and self.text.startswith("&>", self.at):
            self._end_word()
            self.at += 1
            return
        # `((` opens an arithmetic only where a command could begin; elsewhere it is two subshells.
        if char == "(" and self.text.startswith("((", self.at) and not self.words and not self.draft.started:
            self._arithmetic(self._balanced(self.at))
            return
        if char == "(" and _ARRAY.fullmatch("".join(self.draft.text)) and not self.draft.quoted:
            self._array("".join(self.draft.text).partition("=")[0])
            return
        in_head = bool(self.words) and self.words[0].text == "case"
        if char == ")" and self.cases and not self.parens and not in_head:
            # The pattern of an arm, `*) ls ;;`, is no command.
            self.draft, self.words = Draft(), []
        operator = next((double for double in ("&&", "||", "|&") if self.text.startswith(double, self.at)), char)
        self._end_command(piped=operator in ("|", "|&"))
        # What follows a subshell does not run in it: `(cd x) && ls`.
        self.after = ")" if self.after == ")" else operator
        self.at += len(operator)
        if char == "\n" and self.heredocs:
            self._read_heredocs()
        elif char == "(":
            self.parens += 1
        elif char == ")" and self.parens:
            self.parens -= 1
        elif char == ")" and not self.cases:
            # Inside `case`, an unpaired `)` ends a pattern.
            raise ShellError("a closing parenthesis without an opening one")

    def _array(self, name: str) -> None:
        """Read the words of `x=(a b)`: they set a variable, as those of a `for` do."""
        self.draft = Draft()
        script = parse_script(self._balanced(self.at), self.depth + 1)
        words = [Word(name.rstrip("+").partition("[")[0])]
        for command in script.commands:
            if command.feeds:
                self.commands.append(command)
            else:
                words += [word._replace(text=_INDEX.sub("", word.text, count=1)) for word in command.words]
        self.problem = self.problem or script.problem
        self.commands.append(SimpleCommand(tuple(words), loop=True))

    def _redirection(self, char: str) -> None:
        if self.text.startswith(char + "(", self.at):
            self.at += 1
            # Process substitution runs a command and leaves a file name: `cat <(curl x)`.
            inside = self._balanced(self.at)
            self._sub_script(inside, "process")
            self.draft.process("/dev/fd/63", inside)
            return
        # `2>x` names a file descriptor; `2 >x` and `'2'>x` are an argument and a redirection.
        # bash also takes a variable for the number: `{fd}>x`.
        if _DESCRIPTOR.fullmatch("".join(self.draft.text)) and not self.draft.quoted:
            self.draft = Draft()
        self._end_word()
        operators = ("<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">")
        self.redirect = next(operator for operator in operators if self.text.startswith(operator, self.at))
        self.at += len(self.redirect)

    def _word_char(self, char: str) -> None:
        draft = self.draft
        self.at += 1
        if char == "\\":
            draft.quoted = True
            draft.put(self.text[self.at : self.at + 1])
            self.at += 1
        elif char == "'":
            end = self.text.find("'", self.at)
            if end < 0:
                raise ShellError("an unclosed quote")
            draft.quoted = True
            draft.put(self.text[self.at : end])
            self.at = end + 1
        elif char == '"':
            draft.quoted = True
            self._double_quoted()
        elif char == "$":
            self._dollar(quoted=False)
        elif char == "`":
            self._backticks(quoted=False)
        elif char in "*?":
            draft.glob(char)
        else:
            if (char == "{" and self._is_brace_expansion()) or (char == "[" and self._is_bracket_glob()):
                draft.expand(whole=False, piece=None)
            draft.put(char, bare=True)

    def _is_bracket_glob(self) -> bool:
        # `[` and `[[` are commands where a blank follows, and a character class elsewhere: `[c]url`.
        if self.draft.started:
            return self.draft.text != ["["]
        following = self.text[self.at : self.at + 2]
        return following[:1] not in ("", " ", "\t", "\n") and following not in ("[ ", "[\t")

    def _is_brace_expansion(self) -> bool:
        # Up to the end of the word: blanks end it, except in quotes.
        end = _BRACES.match(self.text, self.at, self.at + 400)
        return end is not None and ("," in end[0] or ".." in end[0])

    def _double_quoted(self) -> None:
        self.draft.put("")
        while True:
            plain = _PLAIN_QUOTED.match(self.text, self.at)
            if plain is not None:
                self.draft.put(plain[0])
                self.at = plain.end()
            if self.at >= len(self.text):
                raise ShellError("an unclosed quote")
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                return
            if char == "\\" and self.text[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                self.draft.put(self.text[self.at])
                self.at += 1
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                self._backticks(quoted=True)
            else:
                self.draft.put(char)

    def _dollar(self, *, quoted: bool) -> None:
        following = self.text[self.at : self.at + 1]
        if following == "(":
            inside = self._balanced(self.at)
            if inside.startswith("(") and inside.endswith(")"):
                self._arithmetic(inside)
            else:
                self._sub_script(inside)
            self.draft.expand(whole=quoted, piece=Piece("unknown", inside))
        elif following == "{":
            self._braced(quoted=quoted)
        elif following == "'" and not quoted:
            self.at += 1
            self.draft.quoted = True
            text, self.at = read_ansi_c(self.text, self.at)
            self.draft.put(text)
        elif following == '"' and not quoted:
            self.at += 1
            self._double_quoted()
        elif following in _NAME and following:
            self._variable(quoted=quoted)
        elif following and following in "@*#?-$!":
            self.at += 1
            self.draft.expand(whole=quoted and following != "@", piece=Piece("variable", following))
        else:
            self.draft.put("$")

    def _variable(self, *, quoted: bool) -> None:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in _NAME:
            self.at += 1
            if self.text[start].isdecimal():
                break
        # Unquoted, $IFS is a blank: `curl$IFS-s` is two words.
        name = self.text[start : self.at]
        if name == "IFS" and not quoted:
            self._end_word()
        else:
            self.draft.expand(whole=quoted, piece=Piece("variable", name))

    def _braced(self, *, quoted: bool) -> None:
        inside = self._balanced(self.at)
        self.read_substitutions(inside)
        name = inside.lstrip("#!")
        if name.startswith("IFS") and name[3:4] not in _NAME and not quoted:
            self._end_word()
        else:
            self.draft.expand(whole=quoted and "@" not in inside, piece=Piece("variable", inside))

    def _balanced(self, start: int) -> str:
        inside, self.at = read_balanced(self.text, start)
        return inside

    def _backticks(self, *, quoted: bool) -> None:
        out: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise ShellError("an unclosed backtick")
            char = self.text[self.at]
            self.at += 1
            if char == "`":
                break
            if char == "\\" and self.text[self.at : self.at + 1] in ("`", "\\", "$"):
                char = self.text[self.at]
                self.at += 1
            out.append(char)
        self._sub_script("".join(out))
        self.draft.expand(whole=quoted, piece=Piece("unknown", "".join(out)))

    def _sub_script(self, text: str, feeds: Literal["substitution", "process"] = "substitution") -> None:
        script = parse_script(text, self.depth + 1)
        self.commands.extend(command._replace(feeds=command.feeds or feeds) for command in script.commands)
        self.problem = self.problem or script.problem
        self.writes = self.writes or script.writes

    def _arithmetic(self, text: str) -> None:
        """Read an arithmetic, and also the nested subshells that some shells take it for."""
        self.commands.extend(parse_script(text, self.depth + 1).commands)
        self.read_substitutions(text)

    def read_substitutions(self, text: str) -> None:
        """Read only the substitutions of a text: an arithmetic, a parameter, a here-document."""
        at = 0
        count = 0
        while at < len(text):
            if text.startswith(("$(", "${", "`", "<(", ">("), at):
                reader = _Reader(text[at:], self.depth + 1)
                count += 1
                if self.depth >= MAX_DEPTH or count > MAX_SUBSTITUTIONS:
                    raise ShellError("too many substitutions")
                reader._next()
                self.commands.extend(reader.commands)
                self.problem = self.problem or reader.problem
                at += max(reader.at, 1)
            else:
                at += 2 if text[at] == "\\" else 1

    def _read_heredocs(self) -> None:
        for delimiter, literal, dashed in self.heredocs:
            body: list[str] = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if dashed else line) == delimiter:
                    break
                body.append(line)
            text = "\n".join(body)
            # `<<EOF` runs $(…) in its text, `<<'EOF'` does not.
            if not literal:
                self.read_substitutions(text)
            if self.commands:
                last = self.commands[-1]
                self.commands[-1] = last._replace(fed=(*last.fed, text))
        self.heredocs = []

    def _end_word(self) -> None:
        draft, self.draft = self.draft, Draft()
        if not draft.started:
            return
        word = draft.word()
        redirect, self.redirect = self.redirect, None
        if redirect is None:
            self._take(word, quoted=draft.quoted)
        elif redirect == "<<<":
            self.fed.append(word.text)
            self.redirects.append(Redirect(redirect, word))
        elif redirect in ("<<", "<<-"):
            self.heredocs.append((word.text, draft.quoted, redirect == "<<-"))
        else:
            self._redirect(redirect, word)

    def _redirect(self, redirect: str, word: Word) -> None:
        self.redirects.append(Redirect(redirect, word))
        # An allow of `cat` must not cover `cat a > b`. To /dev/null or another descriptor writes no file.
        if ">" in redirect and word.text != "/dev/null" and not (redirect == ">&" and word.text.isdecimal()):
            self.writes = True

    def _take(self, word: Word, *, quoted: bool) -> None:
        self.taken += 1
        if self.taken > MAX_WORDS or len(self.commands) > MAX_COMMANDS:
            raise ShellError("more words than can be judged")
        if not self.words and not quoted and not word.dynamic:
            if word.text in _KEYWORDS:
                self.cases -= word.text == "esac"
                return
            self.cases += word.text == "case"
        if self.words and word.text == "{" and not quoted:
            # A function body follows: `function f {`, `coproc NAME {`.
            self._add(tuple(self.words))
            self.words.clear()
            return
        self.words.append(word)

    def _end_command(self, *, piped: bool) -> None:
        self._end_word()
        swallowing = self.words and self.words[0].text in _SWALLOWING
        if (self.words or self.redirects) and not swallowing:
            self._add(tuple(self.words), feeds="pipe" if piped else "")
        elif self.words and self.words[0].text in ("for", "select"):
            self._add(tuple(self.words[1:]), loop=True)
        elif self.words and self.words[0].text == "case":
            texts = [word.text for word in self.words]
            # The pattern of the first arm, `case x in a) …`, is where a command would be.
            if "in" in texts[:-2]:
                self._add(tuple(self.words[texts.index("in") + 2 :]))
        self.words, self.fed, self.redirect, self.redirects = [], [], None, []
        self.piped = piped

    def _add(self, words: tuple[Word, ...], *, feeds: Literal["", "pipe"] = "", loop: bool = False) -> None:
        fed, redirects = tuple(self.fed), tuple(self.redirects)
        self.commands.append(SimpleCommand(words, self.piped, fed, redirects, self.after, feeds, loop))
        self.after = ""
