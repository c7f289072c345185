"""Find needless 64-bit sums and comparisons in loops of machine code.

Needed are 64 bits for addresses, and for numbers that are loaded with 64 bits or computed from
these by logic, shifts and sums: rows of the index, text positions, words of bases. All others
count, add or compare what would fit 32 bits. The source of a register's value is searched
backwards, and from the loop's start on at its end; branches within the loop are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.helpers.offline_compile import Machine

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)\s*([^;]*);")
_REGISTER = re.compile(r"\b(U?R)(\d+)\b(\.64)?")
_NO_RESULT = {"ST", "STG", "STS", "STL", "RED", "BRA", "BSSY", "BSYNC", "EXIT", "WARPSYNC", "NOP"}
_LOADS = {"LD", "LDG", "LDS", "LDL", "ATOM", "ATOMG", "ATOMS"}


class Instruction(NamedTuple):
    """One instruction; registers as ``R7`` or ``UR7``."""

    text: str
    name: str  # with modifiers
    predicated: bool  # it may leave its results unchanged
    results: frozenset[str]
    sources: frozenset[str]
    address: frozenset[str]  # the sources that form a memory address

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def carries(self) -> bool:
        """True if it is the upper half of a sum or a comparison of 64 bits."""
        return bool(re.match(r"U?((IADD3|IMAD)\.X|ISETP\..*\.EX)\b", self.name))

    @property
    def gives_word(self) -> bool:
        """True if its result is (half of) a 64-bit number, by a load or by logic.

        The shift by 31 bits that fills an upper half with the sign widens 32 bits.
        """
        if self.opcode in _LOADS:
            return ".64" in self.name or ".128" in self.name
        if self.opcode == "SHF" and re.search(r"RZ, 0x1f,", self.text):
            return False
        return self.opcode in ("LOP3", "SHF", "BREV")


def _registers(text: str, width: int = 1) -> set[str]:
    found = set()
    for kind, number, pair in _REGISTER.findall(text):
        for i in range(2 if pair else width):
            found.add(f"{kind}{int(number) + i}")
    return found


def instructions_of(machine: Machine) -> list[Instruction]:
    """Parse the listing of a loop."""
    found = []
    for predicate, name, operands in _LINE.findall(machine.sass):
        first, _, others = operands.partition(", ")
        results, sources = set(), operands
        if name.split(".")[0] not in _NO_RESULT:
            width = 4 if ".128" in name else 2 if re.search(r"\.(64|WIDE)\b", name) else 1
            results, sources = _registers(first, width), others
        in_brackets = re.findall(r"\[([^\]]*)\]", sources)
        address = _registers(in_brackets[-1]) if in_brackets else set()
        found.append(
            Instruction(
                f"{name} {operands}".strip(), name, bool(predicate), frozenset(results),
                frozenset(_registers(sources)), frozenset(address),
            )
        )  # fmt: skip
    return found


def inner_loops(machine: Machine) -> list[list[Instruction]]:
    """Return the innermost loops of a kernel.

    Code behind the kernel's end that jumps back is no loop.
    """
    loops = [instructions_of(loop) for loop in machine.inner_loops]
    return [
        loop for loop in loops if not any(i.opcode == "EXIT" and not i.predicated for i in loop)
    ]


def loop_of_diagonals(machine: Machine) -> list[Instruction]:
    """Return the loop over a wavefront's diagonals: the one around the loop that counts matches.

    The inner one compares three planes of two words of read and text, and counts zeros.
    """
    runs = [
        loop for loop in machine.inner_loops if loop.count("LDG") >= 12 and loop.count("FLO") > 0
    ]
    assert len(runs) == 1, f"{len(runs)} loops that look like a run of matches"
    return instructions_of(machine.loop_around(runs[0]))


def _origins(loop: list[Instruction], at: int, register: str) -> Iterator[int]:
    """Yield the instructions that may have set a register that instruction `at` reads."""
    for back in range(1, len(loop) + 1):
        i = (at - back) % len(loop)
        if register in loop[i].results:
            yield i
            if not loop[i].predicated:
                return


def needless(loop: list[Instruction]) -> list[str]:
    """Return the upper halves of needless 64-bit sums and comparisons of a loop."""
    waiting = [(i, register) for i, one in enumerate(loop) for register in one.address]
    seen, for_addresses = set(waiting), set()
    while waiting:
        at, register = waiting.pop()
        for i in _origins(loop, at, register):
            for_addresses.add(i)
            if loop[i].opcode not in _LOADS:
                more = {(i, source) for source in loop[i].sources} - seen
                seen |= more
                waiting += more
    words = {i for i, one in enumerate(loop) if one.gives_word}
    carrying = {i for i, one in enumerate(loop) if one.carries} - for_addresses
    while True:
        of_words = {
            i
            for i in carrying
            if any(words.intersection(_origins(loop, i, source)) for source in loop[i].sources)
        }
        if not of_words:
            return [loop[i].text for i in sorted(carrying)]
        carrying -= of_words
        words |= of_words
