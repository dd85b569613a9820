"""The parts that sandboxes of ours have in common: boxes that a keeper is the first process of, and their proxy."""

from __future__ import annotations

import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakSet

from journeyman.definition.problems import explain_arguments
from journeyman.hosts.proxy import HostProxy
from journeyman.processes.kept import Keeper, Launch
from journeyman.processes.process import SandboxUnavailable
from journeyman.sandbox.box import GUARANTEES, Box, SandboxGuarantees, SandboxRefusal
from journeyman.sandbox.needs import need_of_host
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox, TellsRefusals
from journeyman.sandbox.trials import find_guarantees

_PROXY_NAMES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class KeptSandbox(Keeper):
    """A box whose first process is a keeper."""

    def __init__(
        self,
        box: Box,
        launch: Launch | None = None,
        describe: Callable[[str], Mapping[str, object]] = lambda _: {},
        *,
        has_temporary: bool = False,
        adds: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start the keeper: see `Keeper`. `adds` are variables that each command gets, unless the box has others.

        Raises:
            SandboxUnavailable: it cannot be started.
        """
        self.box: Final = box
        self._proxy: HostProxy | None = None
        super().__init__(
            launch,
            describe,
            folder=box.work,
            adds={**adds, **box.environment},
            file_bytes=box.limits.file_bytes,
            has_temporary=has_temporary,
            serve=self._serve_hosts if box.hosts else None,
        )

    def _serve_hosts(self, listener: socket.socket) -> tuple[Mapping[str, str], Callable[[], None]]:
        host, port = listener.getsockname()
        self._proxy = HostProxy(listener, self.box.hosts)
        variables: dict[str, str] = dict.fromkeys(_PROXY_NAMES, f"http://{host}:{port}")
        variables |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
        return variables, self._proxy.close

    def take_refusals(self) -> list[SandboxRefusal]:
        """Return the hosts and sockets that commands were refused since this was asked last: see `TellsRefusals`."""
        places = [] if self._proxy is None else self._proxy.take_refused()
        sockets = dict.fromkeys([re.sub(r"[^ -~]", "?", each) for each in self.take_refused()])
        return [
            *(SandboxRefusal(cause="network", what=each, need=need_of_host(each)) for each in places),
            *(SandboxRefusal(cause="socket", what=each, need="outside") for each in sockets),
        ]


class SandboxAdapter(ABC):
    """The part of a `Sandbox` that all of ours have in common: they are tried once, and close what they have opened."""

    def __init__(
        self, name: str, *, help: str = "", lets_through: Collection[Literal["hosts", "sockets"]] = ()
    ) -> None:
        self.name: Final = name
        """The name that is shown."""
        self.help: Final = help
        """The way to make it work where it does not."""
        self.lets_through: Final = lets_through
        """Those that its boxes reach, if they are allowed."""
        self._guarantees: SandboxGuarantees | None = None

    @abstractmethod
    def open_box(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox.open`."""
        ...

    @cached_property
    def _open_boxes(self) -> WeakSet[OpenSandbox]:
        return WeakSet()

    def holds(self) -> SandboxGuarantees:
        """Return what it holds here: see `Sandbox`."""
        if self._guarantees is None:
            self._guarantees = replace(find_guarantees(self, self.help), has_proxy="hosts" in self.lets_through)
        return self._guarantees

    def open(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox`."""
        for what, asked in (("hosts", box.hosts), ("sockets", box.sockets)):
            if asked and what not in self.lets_through:
                raise SandboxUnavailable(f"A box of {self.name} cannot let {what} through: take them out of it.")
        opened = self.open_box(box)
        self._open_boxes.add(opened)
        return opened

    def close(self) -> None:
        """Close all boxes that it has opened."""
        for each in [*self._open_boxes]:
            each.close()


@explain_arguments
class NoSandbox(SandboxAdapter):
    """The sandbox of systems that have none. Commands are started and ended as in a box, and nothing is refused."""

    def __init__(self, reason: str = "there is no sandbox") -> None:
        """`reason` says why there is none, and what would help."""
        super().__init__("none", lets_through=("hosts", "sockets"))
        self._reason: Final = reason

    def holds(self) -> SandboxGuarantees:
        """Return that nothing is held, and why."""
        return SandboxGuarantees(reasons=dict.fromkeys(GUARANTEES, self._reason))

    def open_box(self, box: Box) -> OpenSandbox:
        """Open what draws no borders: see `Sandbox.open`."""
        return KeptSandbox(box)


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = NoSandbox
    _opened: type[OpenSandbox] = KeptSandbox
    _telling: type[TellsRefusals] = KeptSandbox
