"""The part of a host that checks what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from everstep.client.views import Verified
from everstep.runtime.addresses import in_run
from everstep.runtime.integrity.verify import Watching, verify
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services


class HostChecks:
    """Says whether what a host keeps is as it was written."""

    _services: Services
    _runs: Runs

    async def verify(
        self,
        run_ids: str | Iterable[str] | None = None,
        *,
        blobs: bool = True,
        on_run: Callable[[Verified], object] | None = None,
        on_progress: Callable[[str, int, int], object] | None = None,
    ) -> list[Verified]:
        """Check that what is kept of some runs, or of every run, is as it was written; nothing is changed.

        Of a part such as A17/rag, all of its run. Without `blobs`, artifacts are not read. `on_run` is told
        of each run when it is done, `on_progress` of a run, how many of its checkpoints were checked, and how
        many there are.
        """
        named = (run_ids,) if isinstance(run_ids, str) else run_ids
        wanted = None
        if named is not None:  # a part shares its run's chain, which is sound or not as a whole
            wanted = dict.fromkeys([(await in_run(self._runs, name))[0] for name in named])
        watching = Watching(on_run, on_progress)
        return await verify(self._services, self._runs, wanted, watching, blobs=blobs)
