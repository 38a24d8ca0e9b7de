"""Running a campaign in the foreground: watched, interruptible, and told about at the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console

from evaluator.model import EvaluatorError
from evaluator.pool import LocalEvaluator
from kernel_agent.cli.failures import FAILED, INTERRUPTED
from kernel_agent.engine.local import LocalEngine
from kernel_agent.known import Informed
from kernel_agent.model import Campaign
from kernel_agent.report import Report, campaign_report
from kernel_agent.report_text import as_table
from kernel_agent.settings import Settings
from kernel_agent.store.repository import Store
from kernel_agent.watch import watch

TICK_SECONDS = 0.4
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Run(threading.Thread):
    """The engine at work, so that the main thread is free for signals and the terminal."""

    def __init__(self, engine: LocalEngine, campaign_id: str) -> None:
        super().__init__(name="engine")
        self._engine, self._campaign_id = engine, campaign_id
        self._error: BaseException | None = None
        self._campaign: Campaign | None = None

    def run(self) -> None:
        try:
            self._campaign = self._engine.run(self._campaign_id)
        except BaseException as error:
            self._error = error

    def result(self) -> Campaign:
        if self._error is not None:
            raise self._error
        assert self._campaign is not None
        return self._campaign


class _Interruption:
    """Counts signals. Only sets a flag: a handler may run between any two lines of the main thread."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Signals counted within the block. A second one must not end us either: that would leave orphans."""
        before = {number: signal.signal(number, self) for number in ENDING_SIGNALS if not _is_nohup(number)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_nohup(number: signal.Signals) -> bool:
    """Whoever started us asked for the end of the terminal to be ignored."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def run_watched(store: Store, settings: Settings, campaign: Campaign, parallel: int, console: Console) -> Campaign:
    """Run every session that has not ended. Ctrl-C, SIGTERM or a closed terminal ends them soon, with all kept.

    Returns the campaign as it then is. Raises what the engine raises.
    """
    evaluator = Informed(LocalEvaluator(settings.build_cache, campaign.settings.isolation), settings)
    engine = LocalEngine(store, settings.home, evaluator, parallel)
    work, asked = _Run(engine, campaign.id), _Interruption()
    with asked.caught():
        try:
            work.start()
            with watch(store, campaign.id, console) as view:
                _until_done(work, engine, asked, view.tick, lambda text: console.print(text))
        finally:
            # Also when watching failed: nothing may go on unseen.
            if work.is_alive():
                engine.interrupt()
            work.join()
            evaluator.close()
    try:
        return work.result()
    except EvaluatorError:
        if not asked.count:
            raise
        # We closed the evaluator under a session that waited for it: that is the interruption, not a failure.
        return store.campaign(campaign.id)


def _until_done(
    work: _Run, engine: LocalEngine, asked: _Interruption, tick: Callable[[], None], say: Callable[[str], None]
) -> None:
    said = 0
    ending: threading.Thread | None = None
    while work.is_alive():
        work.join(TICK_SECONDS)
        tick()
        if asked.count > said:
            said = asked.count
            if ending is None:
                say("Stopping; everything up to the last complete step is kept.")
                ending = threading.Thread(target=engine.interrupt, name="interrupt")
                ending.start()
            else:
                say("Already stopping: waiting for its processes to end.")
    if ending is not None:
        ending.join()


def conclude(store: Store, campaign: Campaign, console: Console, words: str) -> Report:
    """Print the table and where to look next."""
    report = campaign_report(store, campaign.id)
    console.print()
    console.print(as_table(report))
    console.print()
    if campaign.state in ("stopped", "failed"):
        reason = f" ({campaign.reason})" if campaign.reason else ""
        console.print(
            f"{campaign.state.capitalize()}{reason}. Go on with: {words} resume {campaign.id}", soft_wrap=True
        )
    for text, command in (
        ("the whole report", f"report {campaign.id} --format html --output report.html"),
        ("the best kernels as files", f"export {campaign.id} DIRECTORY"),
        ("the curves in a browser", "serve"),
    ):
        console.print(f"{text + ':':<27}{words} {command}", soft_wrap=True)
    return report


def leave(campaign: Campaign) -> None:
    """Exit with what the campaign's end means."""
    if campaign.state == "stopped" and campaign.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if campaign.state == "failed":
        raise typer.Exit(FAILED)


def keep_recordings(store: Store, campaign: Campaign, folder: Path, say: Callable[[str], None]) -> None:
    """Write what each session's model said, one file a session; a folder per rollout where there are several."""
    from kernel_agent.gateway.recording import record

    for session in store.sessions(campaign.id):
        if not session.steps:
            continue
        place = folder / f"rollout-{session.rollout + 1}" if campaign.settings.rollouts > 1 else folder
        path = place / f"{store.problem(session.id).slug}.jsonl"
        record(store, session.id).save(path)
        say(f"recorded {session.steps} answers in {path}")
