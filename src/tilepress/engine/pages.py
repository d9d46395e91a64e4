"""Who uses which page, and which pages hold what a new prompt starts with."""

from collections import OrderedDict
from collections.abc import Callable
from itertools import count

Key = tuple[int, tuple[int, ...]]  # the published page before, by its serial number, and the tokens in this one

ROOT = 0  # serial number of what stands before a sequence's first page


class PagePool:
    """Pages with counts of their users.

    A full page can be published: others find it by its tokens and the published page before it, so by all tokens from
    the first on. The key holds them, and nothing is trusted to a hash. What no one uses any more stays published until
    its page is needed; the one unused longest goes first.

    Args:
        pages: how many there are.
        released: gets the pages that no one has any more, nor finds.
    """

    def __init__(self, pages: int, released: Callable[[int], None] = lambda page: None) -> None:
        self.pages, self._released = pages, released
        self.users = [0] * pages
        self._empty = list(range(pages - 1, -1, -1))
        self._unused: OrderedDict[int, None] = OrderedDict()  # published, longest unused first
        self._published: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}  # of published pages
        self._serials: dict[int, int] = {}  # of published pages and their copies; never used again
        self._next_serial = count(ROOT + 1)

    @property
    def free(self) -> int:
        """Pages that no one uses, published ones among them."""
        return len(self._empty) + len(self._unused)

    def take(self, like: int | None = None) -> int:
        """A page for one user, whatever it held; IndexError if none is free. It is to hold what page `like` holds, if
        that is given: others may be published after it."""
        if self._empty:
            page = self._empty.pop()
        elif self._unused:
            page = self._unused.popitem(last=False)[0]
            self._unpublish(page)
            self._released(page)
        else:
            raise IndexError("no page is free")
        self.users[page] = 1
        if like in self._serials:
            self._serials[page] = self._serials[like]
        return page

    def share(self, page: int) -> None:
        """One more user of a page that has some, or is published."""
        self._unused.pop(page, None)
        self.users[page] += 1

    def release(self, pages: list[int]) -> None:
        """One user less of each page of a sequence. The last page is the first to be taken: without those before it,
        it cannot be found."""
        for page in reversed(pages):
            self.users[page] -= 1
            if not self.users[page]:
                self._put_back(page)

    def lookup(self, previous: int | None, tokens: tuple[int, ...]) -> int | None:
        """The published page with these tokens after page `previous`; None stands before the first."""
        serial = self._serial(previous)
        return None if serial is None else self._published.get((serial, tokens))

    def publish(self, previous: int | None, tokens: tuple[int, ...], page: int, *, anew: bool = False) -> int:
        """Lets others find a full page. Returns the page to use from now on: where there is one with these tokens
        already, that one, and `page` is released. If anew, `page` takes its place instead."""
        serial = self._serial(previous)
        if serial is None:
            return page
        known = self._published.setdefault((serial, tokens), page)
        if known == page:
            self._keys[page], self._serials[page] = (serial, tokens), next(self._next_serial)
        elif anew:
            self._take_place(known, page)
        else:
            self.share(known)
            self.release([page])
            return known
        return page

    def is_published(self, page: int) -> bool:
        return page in self._keys

    def is_empty(self, page: int) -> bool:
        """Whether no one has it, nor finds it."""
        return not self.users[page] and page not in self._keys

    def forget(self, pages: list[int]) -> None:
        """No one finds these pages, which have users, any more."""
        for page in pages:
            if page in self._keys:
                self._unpublish(page)

    def freed_by(self, held: list[int]) -> int:
        """Pages that would be free if users released `held`, which has a page once for each of them."""
        shares: dict[int, int] = {}
        for page in held:
            shares[page] = shares.get(page, 0) + 1
        return sum(share == self.users[page] for page, share in shares.items())

    def _serial(self, page: int | None) -> int | None:
        return ROOT if page is None else self._serials.get(page)

    def _take_place(self, known: int, page: int) -> None:
        """`page` is found where `known` was."""
        key = self._keys.pop(known)
        self._published[key], self._keys[page], self._serials[page] = page, key, self._serials[known]
        if known in self._unused:
            del self._unused[known]
            self._put_back(known)

    def _put_back(self, page: int) -> None:
        if page in self._keys:
            self._unused[page] = None
        else:
            self._serials.pop(page, None)
            self._empty.append(page)
            self._released(page)

    def _unpublish(self, page: int) -> None:
        del self._published[self._keys.pop(page)], self._serials[page]
