"""Alignment options of users: names, limits, and how they become the parameters of the stages.

The names are those of the fields of the stages' parameters, which hold the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.errors import UsageError, option
from mapper.params import (
    LONG_CS,
    MAX_READ_LEN,
    NO_CS,
    PRESETS,
    SHORT_CS,
    LongParams,
    MapParams,
)

if TYPE_CHECKING:
    from mapper.pair.insert_size import InsertSizeModel

_DEFAULTS = MapParams()
_SHORTEST_SEED = 10


class WholeNumber(NamedTuple):
    """An option with a whole number."""

    stage: str
    """Field of MapParams that holds it."""
    lowest: int
    highest: int
    scales: bool = False
    """True if the default is multiplied by the match score, as in bwa."""


# Within these limits no score, sum of the scores of a pair, or workspace overflows.
WHOLE_NUMBERS = {
    "match": WholeNumber("extend", 1, 20),
    "mismatch": WholeNumber("extend", 1, 200, True),
    "gap_open": WholeNumber("extend", 0, 200, True),
    "gap_extend": WholeNumber("extend", 1, 200, True),
    "end_bonus": WholeNumber("extend", 0, 1000, True),
    "min_score": WholeNumber("extend", 1, 20 * MAX_READ_LEN, True),
    "unpaired_penalty": WholeNumber("pair", 0, 1_000_000, True),
    "seed_len": WholeNumber("seed", 0, MAX_READ_LEN),
    "max_occ": WholeNumber("seed", 1, 1_000_000),
}
"""Options with a whole number, by name. Limits and defaults are those of short reads."""

LONG_SCORES = {
    "match": (1, 15),  # a read of 2**27 bases scores less than 2**31
    "mismatch": (1, 200),
    "gap_open": (0, 200),
    "gap_extend": (1, 200),
    "end_bonus": (0, 1000),
    "min_score": (1, 1_000_000),
}
"""Lowest and highest values of the options that long reads have, too, by name."""

TWO_PIECES = ("gap_open", "gap_extend")
"""Options that may be two numbers for long reads: one for each piece of a gap's cost."""

SWITCHES = ("extended_cigar", "soft_clip_supplementary", "all_alignments", "ds")
"""Options of records that are on or off."""

CS_FORMS = {"short": SHORT_CS, "long": LONG_CS}
"""Values of the option cs."""

SHORT_READS = "sr"
"""The preset that maps reads by their length; the others map all single reads as long ones."""

MAX_INSERT_SIZE = 1_000_000
"""Largest insert size that can be given; the model has an entry for each proper one."""

MIN_INSERT_SIZE = 20
"""Smallest mean insert size that can be given: the length of the shortest reads."""


def default_of(name: str) -> int:
    """Return the default of a whole number."""
    return int(getattr(getattr(_DEFAULTS, WHOLE_NUMBERS[name].stage), name))


def map_params(given: Mapping[str, Any]) -> MapParams:
    """Return the parameters of the stages.

    Parameters
    ----------
    given
        Options by name; None, or none of that name, for the default.

    Raises
    ------
    UsageError
        For values out of range.
    """
    values: dict[str, dict[str, Any]] = {"seed": {}, "extend": {}, "pair": {}}
    preset = given.get("preset") or SHORT_READS
    if preset not in PRESETS:
        raise UsageError(f"{option('preset', preset)}: {', '.join(PRESETS)} are expected")
    is_long = preset != SHORT_READS
    match: int = _DEFAULTS.extend.match
    if not is_long and _is_whole(given.get("match")):  # else it is refused below, or None
        match = given["match"]
    for name, (stage, lowest, highest, scales) in WHOLE_NUMBERS.items():
        value = given.get(name)
        if is_long and value is not None and name not in LONG_SCORES:
            raise UsageError(
                f"{option(name, value)} and {option('preset', preset)}: it is of short reads; "
                "leave one of both out"
            )
        if name in TWO_PIECES and _is_pair(value) and not is_long:
            raise UsageError(
                f"{_shown(name, value)}: gaps of short reads have one number, of long reads two; "
                f"{option('preset')} hifi, ont or asm maps single reads as long ones"
            )
        if value is None or is_long:  # of pairs with a preset for long reads
            value = default_of(name) * (match if scales else 1)
        elif not _is_whole(value) or not lowest <= value <= highest:
            raise UsageError(f"{option(name, value)}: {lowest} to {highest} is expected")
        values[stage][name] = int(value)
    seed_len = values["seed"]["seed_len"]
    if 0 < seed_len < _SHORTEST_SEED:
        raise UsageError(
            f"{option('seed_len', seed_len)}: 0 or at least {_SHORTEST_SEED} is expected"
        )
    switches = {name: bool(given.get(name)) for name in SWITCHES}
    cs = given.get("cs")
    if cs is not None and cs not in CS_FORMS:
        raise UsageError(f"{option('cs', cs)}: {', '.join(CS_FORMS)} are expected")
    return MapParams(
        long=_long_params(PRESETS[preset], given) if is_long else PRESETS[preset],
        longest_short=MAX_READ_LEN if preset == SHORT_READS else -1,
        seed=_DEFAULTS.seed._replace(**values["seed"]),
        extend=_DEFAULTS.extend._replace(**values["extend"]),
        pair=_DEFAULTS.pair._replace(**values["pair"]),
        record=_DEFAULTS.record._replace(**switches, cs=NO_CS if cs is None else CS_FORMS[cs]),
    )


def _long_params(params: LongParams, given: Mapping[str, Any]) -> LongParams:
    """Return the parameters of long reads with given scores; others stay, as in minimap2."""
    values: dict[str, int] = {}
    for name, (lowest, highest) in LONG_SCORES.items():
        value = given.get(name)
        if value is None:
            continue
        pieces = value if name in TWO_PIECES and _is_pair(value) else (value, value)
        if not all(_is_whole(piece) and lowest <= piece <= highest for piece in pieces):
            kinds = ", or two such numbers, are" if name in TWO_PIECES else " is"
            raise UsageError(f"{_shown(name, value)}: {lowest} to {highest}{kinds} expected")
        if name in TWO_PIECES:
            values |= {f"{name}{i + 1}": int(piece) for i, piece in enumerate(pieces)}
        else:
            values[name] = int(value)
    of_pieces = {name: values.pop(name) for name in ("end_bonus", "min_score") if name in values}
    if values:
        from mapper.two_piece_band import difference_type

        params = params._replace(scoring=params.scoring._replace(**values))
        difference_type(params.scoring)  # refuses scores that alignment cannot hold
    return params._replace(pieces=params.pieces._replace(**of_pieces))


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _shown(name: str, value: object) -> str:
    """Return an option as users give it, two numbers as ``4,24`` or ``(4, 24)``."""
    if option(name).startswith("-") and isinstance(value, tuple | list):
        value = ",".join(map(str, value))
    return option(name, value)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def insert_size_model(numbers: Sequence[float], shown: object) -> InsertSizeModel:
    """Return the insert-size model of a given mean, deviation, largest and smallest size.

    Parameters
    ----------
    numbers
        One to four; the deviation is a tenth of the mean, and sizes are proper up to four
        deviations from it, unless given. Negative where mates point outwards.
    shown
        What the user gave, for messages.

    Raises
    ------
    UsageError
        For numbers out of range.
    """
    from mapper.pair.insert_size import model_from

    what = option("insert_size", shown)
    if not 1 <= len(numbers) <= 4:
        raise UsageError(f"{what}: MEAN[,SD[,MAX[,MIN]]] is expected")
    mean = numbers[0]
    std = numbers[1] if len(numbers) > 1 else abs(mean) / 10
    high = numbers[2] if len(numbers) > 2 else mean + 4 * std
    low = numbers[3] if len(numbers) > 3 else mean - 4 * std
    if not all(abs(size) <= MAX_INSERT_SIZE for size in (mean, std, high, low)):  # nor "nan"
        raise UsageError(f"{what}: sizes of at most {MAX_INSERT_SIZE} are expected")
    if abs(mean) < MIN_INSERT_SIZE:
        raise UsageError(
            f"{what}: MEAN of at least {MIN_INSERT_SIZE} is expected, or of at most "
            f"-{MIN_INSERT_SIZE} where mates point outwards"
        )
    if std <= 0:
        raise UsageError(f"{what}: SD must be positive")
    if not low <= mean <= high:
        raise UsageError(
            f"{what}: MIN, MEAN and MAX in ascending order are expected, and they are "
            f"{low:g}, {mean:g} and {high:g}"
        )
    return model_from(mean, std, round(low), round(high), 0)
