"""The kernel's side of seccomp user notification: questions, answers, descriptors handed in, memory and paths."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from typing import Final, NamedTuple

RECEIVE, SEND, IS_VALID, ADD_DESCRIPTOR, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x40082104
SYNCHRONOUS = 1
ADD_AND_SEND = 1 << 1
PATH_BYTES = 4096
PAGE = 4096
SYS_OPENAT2: Final = 437  # on every machine
NO_MAGIC_LINKS, IN_ROOT = 0x02, 0x10
# With IN_ROOT the kernel gives up where a folder was renamed beside a `..`; it is asked again so often.
MAX_RETRIES = 16
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_ADDED = struct.Struct("=QIIII")
_ID = struct.Struct("=Q")
_OPEN_HOW = struct.Struct("=QQQ")
_LIBC = ctypes.CDLL(None, use_errno=True)
_syscall = _LIBC.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)


class Question(NamedTuple):
    """A system call that waits for an answer: its id, the thread, the call's number and arguments."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


class GoneError(Exception):
    """The thread that asked was killed, or interrupted: nobody waits for the answer."""


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_read_memory = _LIBC.process_vm_readv
_read_memory.restype = ctypes.c_ssize_t
_read_memory.argtypes = (
    *(ctypes.c_int, ctypes.POINTER(_Piece), ctypes.c_ulong, ctypes.POINTER(_Piece), ctypes.c_ulong),
    ctypes.c_ulong,
)


class Listener:
    """A filter's listener, for one thread that asks and answers. Every method raises GoneError where nobody waits."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._question = bytearray(_QUESTION.size)
        self._blank = bytes(_QUESTION.size)
        self._memory = ctypes.create_string_buffer(PATH_BYTES + PAGE)
        self._local = _Piece(ctypes.addressof(self._memory), 0)
        self._remote = _Piece(0, 0)
        # The waiting thread goes on where we run, which saves a fifth of the time. Since Linux 6.6.
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, SET_FLAGS, SYNCHRONOUS)

    def receive(self) -> Question:
        """Return the next question; wait for it."""
        buffer = self._question
        buffer[:] = self._blank  # the kernel refuses a buffer that is not zero
        try:
            fcntl.ioctl(self.descriptor, RECEIVE, buffer, True)
        except OSError as error:
            if error.errno == errno.ENOENT:  # killed between the question and this call
                raise GoneError from None
            raise
        asked, thread, _, number, _, _, *arguments = _QUESTION.unpack(buffer)
        return Question(asked, thread, number, tuple(arguments))

    def check_waits(self, question: Question) -> None:
        """Raise GoneError unless the thread still waits: else its number, memory and folders may be another's."""
        try:
            fcntl.ioctl(self.descriptor, IS_VALID, _ID.pack(question.id))
        except OSError:
            raise GoneError from None

    def answer(self, question: Question, value: int = 0, error: int = 0) -> None:
        """Let the call return `value`, or fail with `error`."""
        try:
            fcntl.ioctl(self.descriptor, SEND, _ANSWER.pack(question.id, value, -error, 0))
        except OSError:
            raise GoneError from None

    def hand_in(self, question: Question, descriptor: int, *, close_on_exec: bool) -> int:
        """Put a copy of our descriptor into the program and let its call return that; return the number it got."""
        # One step: a descriptor that is in the program while the call still waits could be used by another thread.
        flags = os.O_CLOEXEC if close_on_exec else 0
        added = bytearray(_ADDED.pack(question.id, ADD_AND_SEND, descriptor, 0, flags))
        try:
            return int(fcntl.ioctl(self.descriptor, ADD_DESCRIPTOR, added, True))
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise GoneError from None
            # No room for it. Whatever it is: a question without an answer would stop the program for ever.
            number = error.errno if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM) else errno.EACCES
            self.answer(question, error=number or errno.EACCES)
            return -1

    def read_path(self, question: Question, address: int) -> bytes:
        """Return a copy of the path at an address of the program. Raises OSError as the kernel would."""
        # Up to the end of the page first: what follows may not be mapped.
        length = PAGE - address % PAGE
        while True:
            data = self.read(question, address, length)
            end = data.find(b"\0")
            if end >= 0:
                return data[:end]
            if len(data) >= PATH_BYTES:
                raise OSError(errno.ENAMETOOLONG, "")
            length += PAGE if length + PAGE <= PATH_BYTES else PATH_BYTES - length

    def read(self, question: Question, address: int, length: int) -> bytes:
        """Return a copy of the program's memory. Raises OSError where that is not mapped."""
        self._local.length = length
        remote = self._remote
        remote.base, remote.length = address, length
        got = _read_memory(question.thread, ctypes.byref(self._local), 1, ctypes.byref(remote), 1, 0)
        if got != length:
            number = errno.EFAULT if got >= 0 else ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return self._memory.raw[:length]


def openat2(folder: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """Make the system call of that name, close-on-exec. Raises OSError."""
    how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, mode, resolve)
    for _ in range(MAX_RETRIES):
        descriptor: int = _syscall(SYS_OPENAT2, folder, path, how, _OPEN_HOW.size)
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number))
