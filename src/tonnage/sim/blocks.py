"""The paged pool with its prefix cache: blocks by reference count, whole blocks found again, the longest unused evicted first.

Content is a tree of pieces: a node is a piece of text behind the pieces before it, and holds the whole blocks that end in it.
Free blocks stand in one queue, oldest first; what a request frees goes to its end, its last blocks first, as vLLM frees them. A node
whose blocks are all unused stands in the queue as one run, so that a request costs its pieces and not its blocks.

Blocks are taken from the front of the queue without looking at them until someone asks what is cached: how many were taken
by then decides what is gone (`settle`). That is exact, since the queue is first in, first out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

Piece = tuple[Hashable, int]
"""(what it is, its tokens): equal pieces behind equal pieces are the same text."""


class Node:
    """A piece in its place: the blocks that end in it, how many of them hold it now, and how many requests use them."""

    __slots__ = ("blocks", "cached", "children", "refs", "run", "start")

    def __init__(self, start: int, blocks: int) -> None:
        self.start = start
        self.blocks = blocks
        self.cached = 0
        self.refs = 0
        self.run: Run | None = None
        self.children: dict[Hashable, Node] = {}


class Run:
    """Free blocks that stand together in the queue: a node's, or nobody's."""

    __slots__ = ("count", "node")

    def __init__(self, count: int, node: Node | None) -> None:
        self.count = count
        self.node = node


class Held:
    """What a request holds of the tree: nodes it shares or owns, and those of them that are its to compute.

    `covered` of its blocks are nodes' and not its own; `used` of them nobody used before it came.
    """

    __slots__ = ("covered", "hit_blocks", "nodes", "owned", "parent", "used")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.owned: list[Node] = []
        self.hit_blocks = 0
        self.covered = 0
        self.used = 0
        self.parent: Node | None = None


class PrefixCache:
    """The tree of content over a pool of so many blocks, each of `block_tokens`.

    `freed` and `touched` count blocks that went into the queue and were taken out of its middle; with the blocks in use they
    tell how many were taken from its front.
    """

    __slots__ = ("block_tokens", "freed", "popped", "queue", "root", "touched")

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.queue: deque[Run] = deque([Run(blocks, None)])
        self.root: dict[Hashable, Node] = {}
        self.popped = 0
        self.freed = 0
        self.touched = 0

    def settle(self, in_use: int) -> None:
        """Take from the front what has been allocated since the last time; `in_use` blocks are held by requests now."""
        due = in_use + self.freed - self.touched - self.popped
        queue = self.queue
        while due > 0 and queue:
            run = queue[0]
            count = run.count
            if count > due:
                run.count = count - due
                if run.node is not None:
                    run.node.cached -= due
                self.popped += due
                return
            queue.popleft()
            due -= count
            self.popped += count
            if run.node is not None:
                run.node.cached -= count
                run.node.run = None
                run.count = 0

    def unchanged(self, in_use_at_most: int) -> bool:
        """Return whether nothing that is cached can have been taken, with so many blocks in use at most: `settle` may wait."""
        front = self.queue[0] if self.queue else None
        return front is not None and front.node is None and in_use_at_most + self.freed - self.touched - self.popped < front.count

    def look_up(self, pieces: Sequence[Piece], most_tokens: int) -> tuple[int, int, list[Node]]:
        """Return (blocks found, those of them nobody uses now, nodes on the way) for a content, at most so many tokens of it."""
        most = most_tokens // self.block_tokens
        children, found, unused, path = self.root, 0, 0, []
        for piece in pieces:
            node = children.get(piece)
            if node is None:
                break
            path.append(node)
            have = min(node.cached, most - found)
            found += have
            if not node.refs:
                unused += node.cached
            if have < node.blocks:
                break
            children = node.children
        return found, unused, path

    def hold(self, pieces: Sequence[Piece], most_tokens: int) -> Held:
        """Give a request the nodes of its content: cached ones to share, missing ones to compute and own.

        A node that another request is computing is not shared beyond what is done: the rest is this request's own copy. A hit
        that `most_tokens` cuts (one token is always computed again) still keeps its node in use.
        """
        held = Held()
        size = self.block_tokens
        most = most_tokens // size
        nodes, owned = held.nodes, held.owned
        children, tokens, start, hitting = self.root, 0, 0, True
        hit = covered = used = 0
        node = None
        for piece in pieces:
            tokens += piece[1]
            end = tokens // size
            node = children.get(piece)
            if node is None:
                node = children[piece] = Node(start, end - start)
            if node.refs:
                had = node.cached if hitting else 0
                if had:
                    node.refs += 1
                    nodes.append(node)
                    covered += had
            else:
                run = node.run
                if run is not None:
                    self.touched += run.count
                    run.count = 0
                    run.node = None
                    node.run = None
                had = node.cached
                if had < node.blocks:
                    owned.append(node)
                node.refs = 1
                nodes.append(node)
                covered += node.blocks
                used += node.blocks
            if hitting:
                hit += had
                hitting = had == node.blocks
            children, start = node.children, end
        held.parent = node
        held.hit_blocks = hit if hit < most else most
        held.covered = covered
        held.used = used
        return held

    def computed(self, held: Held, blocks: int) -> None:
        """Mark what a request owns as found again, as far as it has computed: blocks from the start of its content."""
        for node in held.owned:
            node.cached = max(node.cached, min(node.blocks, blocks - node.start))

    def release(self, held: Held) -> int:
        """Take a request's nodes back; return the blocks that nobody uses any more, which go to the end of the queue."""
        freed = 0
        for node in reversed(held.nodes):
            node.refs -= 1
            if not node.refs:
                left = node.blocks - node.cached
                if left > 0:  # never computed: nothing to be found, and gone first
                    self.queue.append(Run(left, None))
                if node.cached > 0:
                    node.run = Run(node.cached, node)
                    self.queue.append(node.run)
                freed += node.blocks
        self.freed += freed
        return freed

    def free_private(self, blocks: int) -> None:
        """Put blocks that hold nothing anyone will ask for at the end of the queue."""
        if blocks > 0:
            last = self.queue[-1] if self.queue else None
            if last is not None and last.node is None and last.count:
                last.count += blocks  # nobody's blocks side by side are one run
            else:
                self.queue.append(Run(blocks, None))
            self.freed += blocks

    def keep(self, held: Held, piece: Piece, stored_tokens: int, blocks: int) -> None:
        """Make a node of what a request leaves behind its content (its answer, for the next turn of a conversation).

        The content has to cover the whole prompt. `blocks` are the request's private ones; those that hold the answer are found
        again, the rest is nobody's. The last token of an answer was never stored.
        """
        parent = held.parent
        start = parent.start + parent.blocks if parent is not None else 0
        children = parent.children if parent is not None else self.root
        whole = min(stored_tokens // self.block_tokens - start, blocks)
        if whole <= 0 or piece in children:
            self.free_private(blocks)
            return
        end = (stored_tokens + 1) // self.block_tokens
        node = children[piece] = Node(start, end - start)
        node.cached = whole
        node.run = Run(whole, node)
        if blocks > whole:
            self.queue.append(Run(blocks - whole, None))
        self.queue.append(node.run)
        self.freed += blocks

    def check(self, in_use: int, capacity: int) -> None:
        """Raise AssertionError where blocks are not conserved: those in use and those in the queue are all there are."""
        self.settle(in_use)
        standing = sum(run.count for run in self.queue)
        assert standing + in_use == capacity, (standing, in_use, capacity)
