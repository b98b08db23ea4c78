"""Literal histories, legal and illegal, each with its verdict under every model and the reason.

A row is (name, source, history, the models that it does not meet, reason); it meets all others. The notation is that
of :mod:`mudkit.consistency.notation`. Numeric values of the papers are kept; the papers' registers start with 0,
which here is a record without a write.
"""

from __future__ import annotations

from typing import NamedTuple

CODES = {
    "L": "linearizable", "W": "sequential-wio", "S": "sequential", "FL": "fork-linearizable", "FS": "fork-sequential",
    "FR": "fork-sequential-retracted", "MR": "monotonic-reads", "RYW": "read-your-writes", "MW": "monotonic-writes",
    "WFR": "writes-follow-reads",
}  # fmt: skip

LAMPORT = "Lamport, How to make a multiprocessor computer that correctly executes multiprocess programs, 1979"
HW = "Herlihy and Wing, Linearizability, TOPLAS 1990, figure 1 and section 2, for a register"
MS = "Mazières and Shasha, Building secure file systems out of Byzantine storage, PODC 2002"
OR = "Oprea and Reiter, On consistency of encrypted files, DISC 2006"
CSS = "Cachin, Shelat and Shraer, Efficient fork-linearizable access to untrusted shared memory, PODC 2007"
CKS = "Cachin, Keidar and Shraer, Fork sequential consistency is blocking, IPL 2009"
TERRY = "Terry et al., Session guarantees for weakly consistent replicated data, PDIS 1994"
MOBIUS = "Mobius, MobiSys 2012"
OURS = "mudkit"

NONE, VIEWS, ALL = "", "L W S FL FS FR", "L W S FL FS FR MR RYW MW WFR"


class Fixture(NamedTuple):
    name: str
    source: str
    text: str
    breaks: str
    why: str

    def legal(self, model: str) -> bool:
        return model not in {CODES[code] for code in self.breaks.split()}


FIXTURES = [Fixture(*row) for row in [
    # -- one client
    ("a write and its read", LAMPORT, "p: w1 r1", NONE, "One process after the other, one operation after the other: nothing is concurrent."),
    ("nothing yet", LAMPORT, "p: r0 w1 r1", NONE, "Before the first write there is no record."),
    ("only a write", OURS, "p: w1", NONE, "A write alone is a view."),
    ("its own write forgotten", TERRY + ", section 3.1", "p: w1 r0", VIEWS + " RYW", "The client reads what was there before its own write."),
    ("its own write overwritten by itself", LAMPORT, "p: w1 w2 r2", NONE, "The later write stands."),
    ("its own older write", TERRY + ", section 3.1", "p: w1 w2 r1", VIEWS,
     "Two writes, and the read returns the first; by read-your-writes alone the first may be the newer one, which monotonic writes deny."),
    ("its own older write, versions known", TERRY + ", section 3.1", "p: w1@1 w2@2 r1@1", VIEWS + " RYW", "The versions say that the write it forgot is newer."),
    ("a write read before it is made", TERRY + ", section 3.3", "p: r1 w1", VIEWS + " WFR", "The client's own order puts the read first, and nobody else wrote 1."),
    ("back and forth", TERRY + ", section 3.2", "p: w1 w2\nq:       r2 r1 r2", VIEWS + " MR", "q goes back from 2 to 1 and on again: both orders of the writes are denied."),
    # -- two at once
    ("the later write wins", LAMPORT, "p: w1    r2\nq:    w2", NONE, "w1, w2, r2."),
    ("each reads the other's write", LAMPORT, "p: w1    r2\nq: w2    r1", VIEWS + " RYW", "2 is not older than 1, and 1 not older than 2: each would have been overwritten by the other."),
    ("both read the same winner", LAMPORT, "p: w1    r1\nq: w2    r1", NONE, "w2, w1, and the reads."),
    ("the earlier write wins", HW, "p: w1       r1\nq:    w2", "L", "w2 was over after w1 and before the read. Without real time it may stand first; and on a branch of its own p need not have it in its view."),
    ("stale read", HW, "p: w1\nq:     r0", "L", "The write was over before the read began; q has not heard of it, and p does not know."),
    ("stale read, then fresh", HW, "p: w1\nq:     r0 r1", "L FL", "When q reads 1 it shares p's write, which was over before q's first read."),
    ("fresh read, then stale", TERRY + ", section 3.2", "p: w1\nq:     r1 r0", VIEWS + " MR", "Nothing stood there, then 1, then nothing again."),
    ("overlapping, old value", HW, "p: [w1       ]\nq:     r0", NONE, "While the write is under way both values may be returned."),
    ("overlapping, new value", HW, "p: [w1       ]\nq:     r1", NONE, "The write took effect before the read."),
    ("overlapping, new then old", HW, "p: [w1            ]\nq:     r1    r0", VIEWS + " MR", "Once it took effect it stays."),
    ("overlapping, two readers disagree in time", HW, "p: [w1            ]\nq:     r1\ns:           r0", "L", "s reads the old value after q had the new one: by real time only, and s may be on a branch of its own."),
    ("two readers, two orders", LAMPORT, "p: w1\nq: w2\ns:    r1 r2\nt:    r2 r1", VIEWS + " MR", "s saw 1 before 2 and t saw 2 before 1: there is no one order (independent reads of independent writes, on one record)."),
    ("two readers, one order", LAMPORT, "p: w1\nq: w2\ns:    r1 r2\nt:    r1 r2", "L FL", "w1 before w2 for both; but both writes were over when 1 was read, and with 2 after it."),
    ("two readers while both are written", LAMPORT, "p: [w1        ]\nq: [w2        ]\ns:    r1 r2\nt:    r1 r2", NONE, "w1 before w2, and each read in time."),
    ("reading while writing twice", HW, "p: [w1 ] [w2 ]\nq:   [r2     ]", NONE, "The read lasts until w2 takes effect."),
    ("reading the future", HW, "p:        w1\nq: r1", "L FL", "q reads a write that is invoked later: without real time nothing forbids it."),
    ("a chain of three", LAMPORT, "p: w1\nq:    r1 w2\ns:          r2 r1", VIEWS, "q wrote 2 after it had read 1, so 1 is older; s goes back. Each guarantee alone could still order the writes."),
    ("a chain of three, versions known", TERRY + ", section 3.2", "p: w1@1\nq:    r1@1 w2@2\ns:               r2@2 r1@1", VIEWS + " MR", "The versions say so at once."),
    ("cause before effect", TERRY + ", section 3.3", "p: w1@2\nq:       r1@2 w2@1", VIEWS + " WFR", "q wrote after it had read version 2, and its write became version 1."),
    ("writes in the wrong order", TERRY + ", section 3.4", "p: w1@2 w2@1", VIEWS + " MW", "p's first write became the later version."),
    ("writes in the wrong order, unseen", TERRY + ", section 3.4", "p: w1 w2\nq:       r2\nq:            r1", VIEWS, "q reads p's writes backwards; without versions no single guarantee can tell which write is newer."),
    ("writes in the wrong order, concurrent", MOBIUS + ", 4.1, footnote 2", "p: [w1@2  ]\np:   [w2@1    ]", "W", "Two writes under way at once may take effect in either order, unless the order of invocation counts."),
    # -- several under way (Mobius 4.1: asynchronous clients)
    ("a read does not wait for the write", MOBIUS + ", 4.1, footnote 2", "p: [w1       ]\np:     r0", "W", "Invoked after the write, the read returns what was there before: allowed but with write invocation order."),
    ("a read under way when the write begins", MOBIUS + ", appendix A, definition 2", "p: [r1       ]\np:     w1", "W", "The read was invoked before the write that it returns; one of the two is a write, so with WIO it comes first."),
    ("two reads under way cross", MOBIUS + ", appendix A, definition 2", "p: [r1      ]\np:   [r0      ]\nq:     w1", NONE, "Two reads of one client may cross: neither is a write."),
    ("reads that cross around a write", MOBIUS + ", appendix A, definition 2", "p: [r2          ]\np:   [w1          ]\np:     [r0          ]\nq:  [w2           ]", "W",
     "By invocation p reads 2, writes 1 and reads nothing: it had to be nothing before w2, r2 and w1."),
    ("reads that cross around a refused write", MOBIUS + ", appendix A, definition 2", "p: [r2          ]\np:   [w1        #]\np:     [r0          ]\nq:  [w2           ]", "W",
     "A write that was refused is a write: by invocation the read of 2 comes before it, and it before the read of nothing."),
    ("two blind writes, the first one read", MOBIUS + ", 4.1, footnote 2", "p: [w1         ]\np:   [w2         ]\np:                r1", "W", "Both writes were under way at once, so 2 may come first."),
    ("conditional on its own pending write", MOBIUS + ", 4.2", "p: [w1@1   ]\np:   [w1>2@2   ]\np:      u2         u2", NONE, "The second write replaces the first, and both succeed."),
    # -- disconnected writers (Mobius 3.2 and 4.1)
    ("disconnected writer reads its own", MOBIUS + ", 4.1", "p: [w1          ]\np:    u1\nq:      w2 u2\np:                 u1\nq:                 u1", "L FL", "p writes and reads without a network; its write takes effect when it is back."),
    ("disconnected writers, blind", MOBIUS + ", 4.1", "p: [w1@2           ]\np:    u1  u1\nq:    [w2@1     ]\nq:       u2\np:                   u1\nq:                   u1", "L FL",
     "Each sees its own pending write. Branches that begin with a blind write can be laid one after the other, so this is even sequential."),
    ("disconnected writer, never back", MOBIUS + ", 4.1", "p: w1…\np:    u1  u1\nq:    w2  u2  u2", "L", "p's write was never answered; p saw it, so it took effect, if only for p."),
    ("disconnected writers, both conditional, never back", MOBIUS + ", 4.1", "p: w0>1…\np:       u1  u1\nq: w0>2…\nq:       u2  u2", "L W S",
     "Each has inserted the record and reads it: two branches that have nothing in common. No one order has both inserts succeed."),
    ("forked for good", CKS, "p: w0>1   r1   r1\nq: w0>2   r2   r2", "L W S", "Both conditions held, so neither view may have the other's write."),
    ("forked by conditional writes after one write", OR, "p: w1   w1>2  r2\nq:      w1>3  r3", "L W S", "The views share w1 and part there."),
    ("a fork that joins", OR, "p: w0>1   r1     r2\nq: w0>2   r2", VIEWS, "p's view would have both inserts, once it has read q's: no-join."),
    ("a fork that joins by a third", CSS, "p: w0>1   r1\nq: w0>2   r2\ns:           r1  r2", VIEWS, "s may be on p's branch or on q's, not first on one and then on the other."),
    ("a third on each branch", CSS, "p: w0>1   r1\nq: w0>2   r2\ns:           r1\nt:              r2", "L W S", "s goes with p, t with q."),
    ("a server that hides a write", MS, "p: w1       r1\nq:     r0      r0", "L", "q is kept on a branch without p's write: it never learns of it, and its branch is legal."),
    ("a server that hides a write for a while", MS, "p: w1       r1\nq:     r0      r1", "L FL", "Once q is shown the write, its view has it, before its first read by real time."),
    ("hidden from one of three", CSS, "p: w1   w2\nq:         r2\ns:         r1   r1", "L", "s is one write behind and stays there; its branch parts before w2."),
    ("hidden and shown to a reader", CSS, "p: w1   w2\nq:         r2\ns:         r1   r2", "L FL", "s joins the branch with w2, which was over before it had read 1."),
    ("forked readers of one writer", CKS, "p: w1   w2    w3\nq:         r1     r1\ns:         r2     r3", "L", "q stopped at w1, and that is its view for good."),
    # -- conditional writes
    ("a chain of conditional writes", MOBIUS + ", 4.2", "p: w0>1\nq:       w1>2\np:             w2>3  r3", NONE, "Each replaces what the one before wrote."),
    ("a lost update", MOBIUS + ", 4.2", "p: w1   w1>2@2\nq:      w1>3@3\np:               r3@3", VIEWS, "Both replaced 1, and p has seen q's write after its own: compare and swap was not atomic."),
    ("a lost update, nobody has seen", MOBIUS + ", 4.2", "p: w1@1   w1>2@2\nq:        w1>3@3", "L W S", "Two successes on one version: legal only on two branches."),
    ("a conflict that is one", MOBIUS + ", 4.2", "p: w1\nq:    w2\np:       w1>3!2  r2", NONE, "q's write stood there, not p's."),
    ("a false conflict", "mudkit, design of MUD tables", "p: w1 w1>2!", VIEWS, "Nothing but 1 can have stood there, and the write was refused: as after a lost acknowledgement that is sent again."),
    ("a false conflict that says what it found", "mudkit, design of MUD tables", "p: w1 w1>2!1", VIEWS, "It was refused because it found what it expected."),
    ("a conflict by a pending write", MOBIUS + ", 4.2", "p: w1 w1>2!\nq: w3…", NONE, "q's write was never answered; it may have been there."),
    ("a conflict with what is read later", MOBIUS + ", 4.2", "p: w1 w1>2!3 r1\nq: [w3        ]", VIEWS, "The conflict found 3, and then 1 was read again."),
    ("a conditional insert after a delete", MOBIUS + ", 4.2", "p: w1 d w0>2 r2", NONE, "After the delete there is no record, so the insert succeeds."),
    ("deleted, and read all the same", MOBIUS + ", 4.2", "p: w1 d r1", VIEWS, "The tombstone is a write like others."),
    ("deleted and inserted again, versions go on", "mudkit, design of MUD tables", "p: w1@1 d@2 w2@3\nq:                r1@1 r0@2 r2@3", "L FL", "q sees the versions one by one, later than they were made."),
    # -- the paper's own trouble
    ("conflict after the pending update was read", MOBIUS + ", 4.2", "p: [w0>1            !2]\np:       u1             u2\nq:         w0>2", "L W S FL FS",
     "The read returned a write that was refused later: by definition 3 it has no effect in any view. Set aside with its read, the rest is legal."),
    ("the same for a device that was disconnected", MOBIUS + ", 3.2 and 4.2", "q: w1    w1>2\np:    u1      [w1>3         !2]\np:                u3   u3       u2", "L W S FL FS",
     "The journal: p edits an old version, reads its edit twice, and is told of the conflict."),
    ("a chain of pending updates, all refused", MOBIUS + ", 4.2", "q: w1    w1>2\np:    u1      [w1>3            !2]\np:                [w3>4         !2]\np:                    u4           u2", "L W S FL FS",
     "The second edit is based on the first, which failed, so it fails as well."),
    ("the refused update read again", MOBIUS + ", 4.2", "p: [w0>1       !2]\np:       u1        u1\nq:         w0>2", VIEWS, "p was told of the conflict, and is shown its refused update all the same: the pending write was kept."),
    ("another client reads the refused update", MOBIUS + ", 4.2", "p: [w0>1       !2]\nq:      w0>2\ns:          u1", VIEWS, "A write that is only pending is nobody else's business."),
    ("the refused update of a backup", MOBIUS + ", 4.2, after a restore", "q:       w0>2\np: [w0>1   !2]\nr:             [w0>1       !2]\nr:                 u1            u2", "L W S FL FS",
     "r is p, restored from a backup in which the update was pending: it has made it again, and waits for the answer again."),
    ("the refused update of a backup, refused again", MOBIUS + ", 4.2, after a restore", "q:       w0>2\np: [w0>1   !2]\nr:             [w0>1       !2]\nr:                             u1", VIEWS,
     "r was told of the second refusal, and is shown the update all the same."),
    ("the refused update of a backup, on another device", MOBIUS + ", 4.2, after a restore", "q:       w0>2       u1\np: [w0>1   !2]\nr:             [w0>1       !2]", VIEWS,
     "Only the restored device has the backup."),
    ("the refused update of a backup, before the restore", MOBIUS + ", 4.2, after a restore", "q:       w0>2\np: [w0>1   !2]   u1\nr:                     [w0>1       !2]", VIEWS,
     "Between the refusal and the restore nothing was pending."),
    ("a refused update that the backup did not have", MOBIUS + ", 4.2, after a restore", "q:       w0>2\np: [w0>1   !2]\nr:                 u1            u2", VIEWS,
     "r is p, restored from a backup in which nothing was pending."),
    ("a committed update of a backup, refused when it is sent again", MOBIUS + ", 4.2, after a restore", "q:  w2@1\np:     [w1@2   ]\nr:              [w1      #]\nr:                  u1     u2@1", "L W S FL FS",
     "The store has forgotten its answer to the update of p, and refuses it; then r, which is p, reads the older version of its backup."),
    ("the pending update flickers", "mudkit, design of MUD tables", "p: [w0>1            !2]\np:      u1   u0\nq:         w0>2", VIEWS + " MR",
     "While it is pending, uncommitted reads return it; here one does not, although one before did."),
    ("refused, and never told", MOBIUS + ", 4.2", "p: w0>1…\np:      u1 u1\nq:    w0>2", "L W S", "p never heard of the conflict: two branches."),
    ("no access", MOBIUS + ", 4.1", "p: [w1    #]\np:            r0", NONE, "A write that was refused has no effect."),
    # -- what is no history of a record
    ("a read of nothing that was written", OURS, "p: w1 r7", ALL, "Nobody wrote 7: an anomaly under every model."),
    ("a version that nobody wrote", OURS, "p: w1@1 r1@2", ALL, "Nobody wrote version 2."),
    ("one version twice", OURS, "p: w1@1\nq: w2@1", ALL, "Two writes cannot both be version 1."),
    ("a version with another value", OURS, "p: w1@1 r2@1\nq:  w2@2", ALL, "Version 1 has the value 1."),
    ("a condition that nobody met", OURS, "p: w5>1", ALL, "It succeeded, and nobody wrote what it was to replace."),
    # -- several ways to read it
    ("one value twice", OURS, "p: w1 w2 w1 r1", NONE, "The read may have returned either write; the second fits."),
    ("one value twice, in vain", OURS, "p: w1 w1 w2 r1", VIEWS, "Whichever write of 1 it returned, 2 stands; no single guarantee says that 2 is the newer one."),
    ("never answered, and seen", OURS, "p: w1…\nq:      r1 r1", NONE, "It took effect, since it was seen."),
    ("never answered, never seen", OURS, "p: w1…\nq:      r0 r0", NONE, "It may not have taken effect."),
    ("never answered, seen and lost", OURS, "p: w1…\nq:      r1 r0", VIEWS + " MR", "Once seen it stays."),
    ("never answered, seen late", OURS, "p: w1…\nq:      r0  r1", NONE, "It may take effect at any time after it was invoked."),
    ("never answered, its version known from a read", OURS, "p: w1…\nq: w2@1    r1@2 r2@1", VIEWS + " MR", "p's write is version 2, since q read it as that; then q went back."),
]]  # fmt: skip
