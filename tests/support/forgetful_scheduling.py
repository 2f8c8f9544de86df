"""How the processes of `make test` get their tests: as with `--dist loadgroup`, and what is done is forgotten."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class ForgetfulScheduling(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        assigned = self.assigned_work[node]
        if all(assigned[scope].values()):
            del assigned[scope]
