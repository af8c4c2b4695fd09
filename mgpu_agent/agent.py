"""The shell around the machine: one loop over link, keeper and spool that turns what happens into events and
carries out commands.

Decides nothing. Everything between two waits is gathered, so that many launches are one write to the keeper
and many ends one message to the master; output goes before the ends that follow it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from typing import assert_never

from msgspec.structs import replace

from mgpu_agent.config import AgentConfig
from mgpu_agent.connector import Connector
from mgpu_agent.core import commands as do
from mgpu_agent.core import events as happened
from mgpu_agent.core.machine import Machine
from mgpu_agent.identity import Identity
from mgpu_agent.keeper import messages as keeper
from mgpu_agent.link import Outbox
from mgpu_agent.parts import Parts
from mgpu_agent.polling import Waiter
from mgpu_agent.process.files import JobFiles
from mgpu_agent.process.preparation import Unprepared
from mgpu_agent.process.task_status import Usage, status_of
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.errors import MgpuError, RemoteProtocolError
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import InputAck, Launch, Prepare, Start
from mgpu_agent.protocol.model import LaunchSpec, TaskStatus
from mgpu_agent.whereabouts import Whereabouts

TICK_S = 0.25
SAFETY_S = 1.0

log = logging.getLogger("mgpu.agent")


class Agent:
    """One node's agent. Owns the link, the connection to the keeper, the spool's watch and the sampler."""

    def __init__(self, config: AgentConfig, identity: Identity, where: Whereabouts, parts: Parts) -> None:
        self._config = config
        enrolment = identity.enrolment
        is_enrolled = enrolment is not None and enrolment.link_public_key == where.target.server_key
        self._machine = Machine(
            node_id=config.node_id,
            public_key=identity.keys.public,
            is_enrolled=is_enrolled,
            is_embedded=config.is_embedded,
            has_line=identity.join is not None,
            master_epoch=enrolment.master_epoch if enrolment is not None and is_enrolled else 0,
        )
        self._spool = parts.spool
        self._watch = parts.watch
        self._keeper = parts.keeper
        self._preparation = parts.preparation
        self._shipper = parts.shipper
        self._link = parts.link
        self._sampler = parts.sampler
        self._gauge = parts.gauge
        self._checks = parts.checks
        self._meetings = parts.meetings
        self._jobs = parts.jobs
        self._wake = parts.wake
        self._waiter = Waiter(parts)
        self._host, self._address = parts.host, parts.address
        self._describe = parts.describe
        self._connector = Connector(self._link, identity, where, parts.look, self._handle)
        self._outbox = Outbox(self._link, self._shipper)
        self._files = JobFiles(
            config.directory, self._outbox.put, self._wake[1], self._preparation, parts.users
        )
        self._usage = Usage()
        self._stems: dict[AttemptKey, dict[int, str]] = {}
        self._events: deque[happened.Event] = deque()
        self._tick_at = self._safety_at = 0.0
        self._end_code = 0
        self._bad_frames: set[str] = set()
        self.end_reason: str | None = None
        """Why the agent ended."""

    # --- life ----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until asked to end; return the exit code."""
        self._waiter.catch_signals(self._on_signal, ignores_hangup=self._config.is_embedded)
        try:
            if not self._watch.is_working:
                log.warning("no_inotify output is looked for every %s s", SAFETY_S)
            self.begin()
            while self.end_reason is None:
                self._turn()
            log.info("ending reason=%r", self.end_reason)
            self._flush()
        except MgpuError as error:
            log.error("failed code=%s message=%r", error.code, error.message)  # noqa: TRY400 - one sentence, no traceback
            return 1
        finally:
            self._close()
        return self._end_code

    def begin(self) -> None:
        """Attach to the keeper, and begin to connect to the master."""
        self._attach("agent and keeper were lost")
        self._handle(happened.Began(at=time.monotonic(), boot=time.clock_gettime(time.CLOCK_BOOTTIME)))

    def _turn(self) -> None:
        ready = self._waiter.wait(self.timeout_ms())
        if ready.woken:
            self._tick_at = time.monotonic()
        self.serve(link=ready.link, keeper=ready.keeper, output=ready.output)

    def serve(self, *, link: bool, keeper: bool, output: bool) -> None:
        """Read what has arrived, do what is due, and send the results."""
        now = time.monotonic()
        if link:
            self._read_link(now)
        if keeper:
            self._read_keeper(now)
        if output:
            self._shipper.grew(self._watch.take())
        for parcel in self._jobs.serve(self._stems) if self._jobs is not None else ():
            self._handle(happened.ParcelPosted(at=now, parcel=parcel))
        self._keep_time(now)
        self._flush()

    def timeout_ms(self) -> int:
        """Return how long the loop may wait if nothing arrives."""
        if self._machine.may_ship and self._shipper.has_more:
            return 0
        wait_s = min(self._tick_at, self._connector.connect_at or self._tick_at) - time.monotonic()
        return max(0, int(wait_s * 1000) + 1)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._events.append(
            happened.EndAsked(at=time.monotonic(), reason=f"Stopped by {signal.Signals(number).name}.")
        )

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._keeper.put(keeper.Leave())
        self._keeper.flush()
        self._keeper.detach()
        threads = (self._link, self._sampler, self._checks, self._meetings)
        for part in (*threads, self._jobs, self._watch, self._spool, self._files, *self._wake):
            if part is not None:
                part.close()

    # --- events in -------------------------------------------------------------------------------------

    def _handle(self, event: happened.Event) -> None:
        self._events.append(event)
        while self._events:
            for command in self._machine.handle(self._events.popleft()):
                self._carry_out(command)

    def _read_link(self, now: float) -> None:
        for event in self._link.events():
            if event.is_up:
                self._connector.note_risen()
                self._handle(happened.LinkRose(at=now))
            else:
                # Messages that a stopping master sent just before it closed are still readable.
                self._read_frames(now)
                self._link.drop()
                self._connector.look_around()
                fell = happened.LinkFell(
                    at=now,
                    may_enrol=self._connector.may_enrol,
                    keys_refused=event.keys_refused,
                    hung_up=event.hung_up,
                )
                self._handle(fell)
        self._read_frames(now)

    def _read_frames(self, now: float) -> None:
        for frame in self._link.receive():
            try:
                epoch, message = codec.decode_to_agent(frame)
            except RemoteProtocolError as error:
                # One warning for each kind: a master that sends rubbish must not fill this node's disk.
                level = logging.DEBUG if error.code in self._bad_frames else logging.WARNING
                self._bad_frames.add(error.code)
                log.log(level, "bad_frame code=%s message=%r", error.code, error.message)
                continue
            if isinstance(message, Launch | Prepare | Start):
                self._spool.note_busy()
            self._handle(happened.FrameArrived(at=now, master_epoch=epoch, message=message))

    def _read_keeper(self, now: float) -> None:
        messages = self._keeper.receive()
        if messages is None:
            self._lose_keeper(now)
            return
        for message in messages:
            match message:
                case keeper.TaskChanged(record=record):
                    self._handle(happened.TaskTold(at=now, status=self._status(record)))
                case keeper.StartRefused(key=key, code=code, message=text, fault=fault, exit_code=exit_code):
                    self._meetings.forget(key)
                    self._files.discard(key)
                    self._handle(
                        happened.LaunchFailed(
                            at=now, key=key, code=code, message=text, fault=fault, exit_code=exit_code
                        )
                    )
                case InputAck():
                    self._handle(happened.InputTaken(at=now, ack=message))
                case keeper.Discarded(stems=stems):
                    self._spool.delete_files(stems)
                case keeper.Snapshot():
                    log.warning("unexpected_snapshot")
                case _:
                    assert_never(message)

    def _lose_keeper(self, now: float) -> None:
        self._keeper.detach()
        self._handle(happened.KeeperLost(at=now))
        self._attach("keeper lost")

    def _attach(self, lost_reason: str) -> None:
        snapshot = self._keeper.attach(lost_reason)
        log.info("keeper_attached pid=%d tasks=%d", snapshot.pid, len(snapshot.tasks))
        self._sampler.set_marker(snapshot.ledger_id.encode() + b"/")
        if self._jobs is not None:
            self._jobs.listen()
        facts = self._describe(snapshot.boot_id, keeper.incarnation(snapshot.boot_id, snapshot.ledger_id))
        stems = {record.spool for record in snapshot.tasks}
        self._spool.delete_unknown({record.key for record in snapshot.tasks}, stems.union(snapshot.spare))
        # A task without a process still runs its prolog: its launch is answered when that has ended.
        statuses = tuple(
            self._status(record) for record in snapshot.tasks if record.pid or record.ended_at is not None
        )
        self._handle(happened.KeeperAttached(at=time.monotonic(), facts=facts, tasks=statuses))
        self._read_keeper(time.monotonic())

    def _status(self, record: keeper.TaskRecord) -> TaskStatus:
        self._stems.setdefault(record.key, {})[record.rank] = record.spool
        self._files.results.note(record)
        used = self._usage.of(record.key)
        return status_of(
            record, used, node_id=self._config.node_id, host=record.host or self._host, address=self._address
        )

    def _keep_time(self, now: float) -> None:
        ready, failed = self._files.turn(now, may_tell=self._machine.may_ship)
        self._events.extend(failed)
        for command in ready:
            self._carry_out(command)
        self._connector.keep_time(now)
        if now >= self._safety_at:
            self._safety_at = now + SAFETY_S
            self._shipper.grew(None)
            self._shipper.check_stalled(now)
            self._shipper.release(now)
            self._files.ask_again(all_of_them=False)
            self._keeper.reap()
        if not self._machine.may_ship:
            self._connector.look_again(now)
        if now >= self._tick_at:
            self._tick_at = now + TICK_S
            self._sampler.set_held(self._machine.held_gpus())
            readings = self._sampler.take()
            self._usage.take(readings.samples, self._machine.gpus_by_attempt())
            self._handle(
                happened.Ticked(
                    at=now,
                    wall=time.time(),
                    boot=time.clock_gettime(time.CLOCK_BOOTTIME),
                    may_enrol=self._connector.may_enrol,
                    samples=readings.samples,
                    read_at=readings.begun_at,
                    measured=self._gauge.read(now),
                    ailments=self._checks.take(),
                )
            )
        for met in self._meetings.take():
            self._handle(happened.PeersMet(at=now, met=met))
        while self._events:  # put there by a signal handler
            self._handle(self._events.popleft())

    # --- commands out ------------------------------------------------------------------------------------

    def _carry_out(self, command: do.Command) -> None:  # noqa: PLR0912, PLR0915 - one case per command
        match command:
            case do.Send(message=message):
                self._outbox.put(message)
            case do.StartLaunch(spec=spec) | do.PrepareLaunch(spec=spec) if not self._files.has(spec):
                self._files.want(command)
            case do.TakePiece(piece=piece):
                self._files.take(piece)
            case do.SendResult(wanted=wanted):
                self._files.results.answer(wanted)
            case do.StartLaunch(spec=spec, alive_at=alive_at):
                self._meetings.leave(spec.key)
                if (start := self._prepare(spec)) is not None:
                    self._keeper.put(replace(start, alive_at=alive_at))
            case do.PrepareLaunch(spec=spec, meets=meets):
                if (start := self._prepare(spec)) is not None:
                    self._events.append(self._prepared(spec, meets=meets, in_scratch=bool(start.note)))
            case do.MeetPeers(message=message):
                self._meetings.meet(message)
            case do.RenewLeases(alive_at=alive_at):
                self._keeper.put(keeper.MasterAlive(alive_at=alive_at))
            case do.FollowOutput(status=status):
                self._shipper.follow(status, self._stems[status.key][status.rank])
                task = (status.key, status.rank, status.pid, status.exit_code)
                log.debug("task key=%s rank=%d pid=%d exit_code=%s", *task)
            case do.TellWho(number=number, statuses=statuses, cell=cell):
                who = (
                    number,
                    self._config.node_id,
                    self._address,
                    self._connector.where.target.address,
                    statuses,
                )
                self._files.tell_who(who, cell)
            case do.ReadGpus():
                self._sampler.set_held(self._machine.held_gpus())
                self._sampler.hurry()
            case do.MoveOutput(mark=mark):
                self._shipper.acknowledge(mark, time.monotonic())
            case do.ForgetAttempts(keys=keys):
                self._keeper.put(keeper.ForgetTasks(keys=keys))
                for key in keys:
                    self._meetings.forget(key)
                    self._shipper.forget(key)
                    self._stems.pop(key, None)
                    self._usage.forget(key)
                self._files.forget(keys)
                self._spool.delete_attempts(keys)
            case do.StopAttempt(key=key, grace_s=grace_s, reason=reason, cause=cause):
                self._meetings.leave(key)
                self._keeper.put(keeper.StopTasks(key=key, grace_s=grace_s, reason=reason, cause=cause))
            case do.Deliver(message=message):
                if self._jobs is not None:
                    self._jobs.deliver(message.key, message.sender, message.data)
            case do.PassOn(message=message):
                self._keeper.put(message)
            case do.SetPace(sample_s=sample_s, output_window_bytes=window_bytes, received=received):
                self._sampler.set_pace(sample_s)
                self._shipper.restart(window_bytes, received)
                self._files.restart()
            case do.SetChecks(checks=checks):
                self._checks.set(checks)
            case do.Connect(enrolling=enrolling, delay_s=delay_s):
                self._outbox.clear()
                self._connector.plan(enrolling=enrolling, delay_s=delay_s)
            case do.SaveEnrolment():
                self._connector.save_enrolment(self._machine.master_epoch)
            case do.SaveMasterEpoch():
                self._connector.save_epoch(self._machine.master_epoch)
            case do.Say(event=name, fields=fields, is_warning=is_warning):
                words = "".join(f" {key}={value!r}" for key, value in fields.items())
                log.log(logging.WARNING if is_warning else logging.INFO, "%s%s", name, words)
            case do.End(reason=reason, code=code):
                self.end_reason, self._end_code = reason, code
            case _:
                assert_never(command)

    def _prepare(self, spec: LaunchSpec) -> keeper.StartTasks | None:
        """Return what the keeper should start; None when preparing failed, which becomes an event."""
        start = self._preparation.prepare(spec, by_uuid=self._machine.has_lost_gpu)
        if not isinstance(start, Unprepared):
            return start
        self._events.append(start.as_event(time.monotonic(), spec.key))
        return None

    def _prepared(self, spec: LaunchSpec, *, meets: bool, in_scratch: bool) -> happened.Event:
        """Prove that an attempt could be started here, and wait for its other nodes if they meet."""
        now = time.monotonic()
        if (lacking := self._preparation.prove(spec)) is not None:
            return lacking.as_event(now, spec.key)
        try:
            offer = self._meetings.open(spec) if meets else None
        except OSError as error:
            why = Unprepared(
                "no-port", f"The node has no port for the other nodes to come to: {error}.", "node"
            )
            return why.as_event(now, spec.key)
        return happened.LaunchPrepared(at=now, key=spec.key, offer=offer, in_scratch=in_scratch)

    def _flush(self) -> None:
        """Send what was gathered: starts to the keeper, then output and after it reports to the master."""
        if self._keeper.has_outgoing and not self._keeper.flush():
            self._lose_keeper(time.monotonic())
        self._outbox.flush(self._machine.master_epoch, may_ship=self._machine.may_ship)
