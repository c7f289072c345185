"""Core: which alignments of a read make each other less sure, by the groups of their contigs.

Those that compete for the same bases do, unless they are *apart* by groups (``Contigs.groups``):

- Named groups hold copies of one another, such as the haplotypes of a diploid reference. Every
  sample matches one copy as well as the other, so a hit in another group says nothing.
- ALT contigs are alternatives to the primary assembly, that is to all other contigs: a hit on an
  ALT contig says nothing against one on the primary assembly. What lies on an ALT contig is the
  less sure for any other hit.
- Contigs of no group compete with all but ALT contigs.

Besides, a read is placed on an ALT contig only where the primary assembly has no place for it.
The alignments of other reads on ALT contigs are *hidden* from placement, and get their roles
last, as in bwa.
"""

from __future__ import annotations

import numpy as np

from mapper.index.reference import ALT, UNGROUPED
from mapper.jit.accelerate import core


@core
def is_alt(groups, ref_id):
    """Return True for an ALT contig; `groups` may be empty."""
    return len(groups) > 0 and groups[ref_id] == ALT


@core
def is_apart(groups, alignments, i, other):
    """Return True if alignment `other` says nothing against `i`, because of their groups."""
    if len(groups) == 0:
        return False
    mine, others = groups[alignments.ref_id[i]], groups[alignments.ref_id[other]]
    if mine == others or mine == ALT:
        return False
    return others == ALT or (mine != UNGROUPED and others != UNGROUPED)


@core
def hide_alt(alignments, first, end, lowest, groups, hidden):
    """Hide the alignments first:end of a read on ALT contigs if it has a place elsewhere.

    Parameters
    ----------
    lowest
        Score from which on alignments are reported. Lower ones elsewhere hide none that reach it.
    hidden
        bool (n_alignments,): the read's are set. Empty without groups.
    """
    if len(groups) == 0:
        return
    best = best_alt = np.int64(-1)
    for i in range(first, end):
        hidden[i] = is_alt(groups, alignments.ref_id[i])
        if hidden[i]:
            best_alt = max(best_alt, np.int64(alignments.score[i]))
        else:
            best = max(best, np.int64(alignments.score[i]))
    if best < 0 or best < lowest <= best_alt:
        hidden[first:end] = False


@core
def is_hidden(hidden, i):
    """Return True for an alignment hidden by :func:`hide_alt`."""
    return len(hidden) > 0 and hidden[i]


@core
def set_rivals(alignments, first, end, groups, head, rival, sub_score):
    """Set the head that each alignment first:end makes less sure: its own, unless it is apart.

    `sub_score` gets the best score of each head's rivals, or 0.
    """
    sub_score[first:end] = 0
    for i in range(first, end):
        rival[i] = head[i]
        if head[i] >= 0 and is_apart(groups, alignments, head[i], i):
            rival[i] = -1
        if rival[i] >= 0 and rival[i] != i:
            sub_score[rival[i]] = max(sub_score[rival[i]], alignments.score[i])
