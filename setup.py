"""The build. FOREBAY_COMPILE=1 makes the layers machine code by mypyc, from the same source.

`make test INSTALL=compiled` does so. Without it a wheel is pure Python, which is the default everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if TYPE_CHECKING:
    from mypy.nodes import ClassDef
    from mypy.plugin import Plugin

LAYERS = ("store", "cache", "dispatch")
INTERPRETED = (
    "__init__.py",  # no code in it
    "aio/async_forebay.py",  # an await costs what it costs
    "aio/async_queue.py",
    "aio/async_consumer.py",
    "aio/async_properties.py",
    "aio/async_transaction.py",
    "aio/async_typed.py",
    "aio/awaiting.py",
    "aio/awaited_opening.py",
    "aio/send_order.py",
    "admin/*.py",  # what follows is done seldom, or for many messages at a time: compiling it made nothing faster
    "config/activemq_*.py",
    "config/memory_plan.py",
    "config/settings_*.py",
    "config/sizes.py",
    "commands/*.py",
    "disk/kernel_sync.py",
    "dispatch/codecs.py",
    "dispatch/store_directories.py",
    "dispatch/typed.py",
    "assembly/*.py",
    "engine/periodic_tasks.py",
    "engine/engine.py",
    "engine/ledger_audit.py",
    "engine/measurements.py",
    "engine/open_destinations.py",
    "engine/process_watch.py",
    "engine/destination_reports.py",
    "engine/explained_store.py",
    "engine/index_fit.py",
    "engine/memory_reports.py",
    "engine/reports.py",
    "engine/resizing.py",
    "engine/status.py",
    "engine/statistics.py",
    "engine/task_runner.py",
    "engine/tasks.py",
    "explain/*.py",
    "format/destination_table.py",
    "ingest/ingest.py",
    "ingest/manifest.py",
    "inspect/dump.py",
    "maintenance/archive.py",
    "maintenance/leases.py",
    "maintenance/retention_reasons.py",
    "planning/lab.py",
    "planning/report.py",
    "planning/picture.py",
    "planning/plan.py",
    "process/*.py",
    "remote/*.py",
    "recovery/opening.py",
    "recovery/repair.py",
    "store/quarantine.py",
    "screen/*.py",
    "dispatch/store_status.py",
    "topics/topic_admin.py",
    "topics/subscriptions/subscription_admin.py",
    "dispatch/host_properties.py",
    "transactions/staged_properties.py",
    "store/environment/account.py",  # what follows is there to be inherited from, or handed in
    "config/policies.py",
    "config/policy.py",
    "config/settings.py",
    "disk/disk.py",
    "disk/memory_disk.py",  # tests of users inherit from these two
    "store/environment/manual_clock.py",
    "store/errors.py",
    "store/environment/late_log.py",  # it looks for the caller's frame
    "store/compiler.py",  # it stands in for names of the compiler
    "store/environment/locks.py",  # a class of machine code can't inherit from one of C
    "metadata/metadata_store.py",
    "metadata/sqlite.py",
    "metadata/memory_store.py",
    "inspect/facts.py",  # what these two hold crosses to other processes, which a frozen class of machine code can't
    "recovery/verify.py",
)
FACADES = {
    "producer.sender.Sender": ("send", "send_many"),
    "queue.Queue": ("subscribe", "get", "join", "browse", "find", "move"),
    "topic.Topic": ("subscribe", "unsubscribe", "subscription", "reader", "read_from"),
    "topic.TopicSubscription": ("seek",),
    "topics.reader.TopicReader": ("take",),
    "consumer.consumer.Consumer": (
        "prefetch",
        "take",
        "batches",
        "process",
        "ack",
        "ack_up_to",
        "nack",
        "release",
        "reject",
        "extend",
        "drain",
        "close",
    ),
    "core.model.delivery.Delivery": ("ack", "nack", "reject", "extend"),
    # What overrides a facade's method is one itself, and the other way round.
    "core.model.delivery.AbstractConsumer": ("ack", "nack", "release", "reject", "extend"),
    "planning.played_consumer.PlayedConsumer": ("ack", "nack", "release", "reject", "extend"),
    "transactions.transaction.Transaction": ("prepare",),
    "memory_forebay.MemoryForebay": ("advance",),
    "forebay.Forebay": ("queue", "topic", "resize", "explain", "close"),
}
"""Public methods, by class of forebay.dispatch: what they are given they check themselves.

Left to itself, compiled code refuses an argument of another type than declared before anything of ours sees it, with a
TypeError that is no ForebayError. tests/dispatch/test_arguments.py calls all of them.
"""
MESSAGE = "forebay.store.message.Message"
"""Likewise its fields and what it is made of, which nobody checks before the message is sent."""
CONFIGURATION = Path("build", "mypy.ini")
NAMED = Path("build", "named", "forebay")
"""The checkout under the package's name, whatever its folder is called."""


def extensions() -> list[Extension]:
    """One for each module, and one that has the code of all, so that calls between them are C calls."""
    from mypyc.build import mypycify

    NAMED.parent.mkdir(parents=True, exist_ok=True)
    NAMED.unlink(missing_ok=True)
    NAMED.symlink_to(Path.cwd(), target_is_directory=True)
    modules = [
        str(module)
        for layer in LAYERS
        for module in sorted((NAMED / layer).rglob("*.py"))
        if not any(map(module.match, INTERPRETED))
    ]
    # Without the first, the checkout itself, which has an __init__.py, would be the top of each module's name.
    options = ["--no-namespace-packages", "--ignore-missing-imports", "--follow-imports=silent"]
    CONFIGURATION.write_text(f"[mypy]\nplugins = {Path(__file__).resolve()}\n")
    options.append(f"--config-file={CONFIGURATION}")
    found: list[Extension] = mypycify([*options, *modules], opt_level="1", debug_level="0", multi_file=True)
    return found


class BuildOnAllCores(build_ext):
    """Compiles the files of an extension side by side, and the extensions: one of ours has nearly all the code, and
    each of the others one small file.
    """

    def build_extensions(self) -> None:
        compile_files = self.compiler.compile
        header = self._precompiled_header() if sys.platform == "linux" else []

        def compile_side_by_side(sources: Iterable[str], **options: Any) -> list[str]:
            # Nobody reads warnings about generated code, and what finds them takes time.
            options["extra_postargs"] = [*options["extra_postargs"], "-w", *header]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_files([source], **options), sources)
                return [built for each in made for built in each]

        self.compiler.compile = compile_side_by_side
        self.parallel = self.parallel or os.cpu_count()
        super().build_extensions()

    def _precompiled_header(self) -> list[str]:
        """Return the options that begin a file with what the compiler has read already: the header of all the code,
        Python's in it. It is longer than most modules, and every file includes it.
        """
        everything = self.extensions[0]
        header = f"build/__native_internal_{everything.name.removesuffix('__mypyc')}.h"
        self.compiler.src_extensions = [*self.compiler.src_extensions, ".h"]
        [made] = self.compiler.compile(
            [header],
            self.build_temp,
            include_dirs=everything.include_dirs,
            extra_postargs=[*everything.extra_compile_args, "-w"],
        )
        Path(made).replace(f"{header}.gch")
        return [*(f"-I{folder}" for folder in everything.include_dirs), "-include", header]


def plugin(version: str) -> type[Plugin]:
    """Return what mypy asks while it reads the layers to compile them: at the facades every type is `Any`.

    Type checkers of users, and `make lint`, know nothing of it: to them the facades have the types that they declare.
    """
    from mypy.nodes import AssignmentStmt, Decorator, FuncDef, OverloadedFuncDef
    from mypy.plugin import ClassDefContext, Plugin
    from mypy.types import AnyType, CallableType, TypeOfAny

    anything = AnyType(TypeOfAny.explicit)

    class Facades(Plugin):
        def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
            if fullname == MESSAGE:
                return open_fields
            return open_methods if fullname.removeprefix("forebay.dispatch.") in FACADES else None

    def open_fields(context: ClassDefContext) -> None:
        for method in functions(context.cls):
            open_method(method)
        for statement in context.cls.defs.body:
            if isinstance(statement, AssignmentStmt) and statement.type is not None:
                statement.type = statement.unanalyzed_type = anything

    def open_methods(context: ClassDefContext) -> None:
        methods = list(functions(context.cls))
        for name in FACADES[context.cls.fullname.removeprefix("forebay.dispatch.")]:
            if name not in [method.name for method in methods]:
                context.api.fail(f"setup.py names a facade {name!r} that is not there", context.cls)
            for method in methods:
                if method.name == name:
                    open_method(method)

    def functions(defined: ClassDef) -> Iterator[FuncDef]:
        for statement in defined.defs.body:
            parts = statement.items if isinstance(statement, OverloadedFuncDef) else [statement]
            for part in parts:
                found = part.func if isinstance(part, Decorator) else part
                if isinstance(found, FuncDef):
                    yield found

    def open_method(method: FuncDef) -> None:
        for declared in (method.type, method.unanalyzed_type):
            if isinstance(declared, CallableType):
                declared.arg_types = [declared.arg_types[0], *[anything] * (len(declared.arg_types) - 1)]
        for argument in method.arguments[1:]:
            argument.type_annotation = anything

    return Facades


if __name__ == "__main__":  # mypy imports it
    # pip runs this file for the metadata, too, which are the same without the code.
    wants_machine_code = os.environ.get("FOREBAY_COMPILE") == "1"
    if wants_machine_code and not {"editable_wheel", "develop"}.isdisjoint(sys.argv):
        sys.exit(
            "FOREBAY_COMPILE=1 makes machine code of a wheel alone: an editable install runs the source as it is. "
            "Leave out -e (--editable), or unset FOREBAY_COMPILE."
        )
    compiled = wants_machine_code and "bdist_wheel" in sys.argv
    setup(
        ext_modules=extensions() if compiled else [],
        cmdclass={"build_ext": BuildOnAllCores},
    )
