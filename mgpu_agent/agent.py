"""The shell around the machine: one loop over link, keeper and spool that turns what happens into events and carries out commands.

Decides nothing. Everything between two waits is gathered, so that many launches are one write to the keeper and many ends one
message to the master; output goes before the ends that follow it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from typing import assert_never

import zmq
from msgspec.structs import replace

from mgpu_agent.config import AgentConfig
from mgpu_agent.core import commands as do
from mgpu_agent.core import events as happened
from mgpu_agent.core.machine import Machine
from mgpu_agent.identity import Enrolment, Identity
from mgpu_agent.keeper import messages as keeper
from mgpu_agent.outbox import Outbox
from mgpu_agent.parts import Parts
from mgpu_agent.process.files import Files
from mgpu_agent.process.preparation import Unprepared
from mgpu_agent.process.status import status_of
from mgpu_agent.process.usage import Usage
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.errors import MgpuError, RemoteProtocolError
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import InputAck, Launch, Prepare, Start
from mgpu_agent.protocol.model import LaunchSpec, TaskStatus
from mgpu_agent.whereabouts import Whereabouts

TICK_S = 0.25
LOOK_AROUND_S = 2.0
SAFETY_S = 1.0
ADDRESS_TRY_S = 3.0

log = logging.getLogger("mgpu.agent")


class Agent:
    """One node's agent. Owns the link, the connection to the keeper, the spool's watch and the sampler."""

    def __init__(self, config: AgentConfig, identity: Identity, where: Whereabouts, parts: Parts) -> None:
        self._config = config
        self._identity = identity
        self._where = where
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
        self._wake, self._wake_writer = parts.wake
        self._host, self._address = parts.host, parts.address
        self._look, self._describe = parts.look, parts.describe
        self._outbox = Outbox(self._link, self._shipper)
        self._files = Files(config.directory, self._outbox.put, self._wake_writer, self._preparation, parts.users)
        self._usage = Usage()
        self._stems: dict[AttemptKey, dict[int, str]] = {}
        self._events: deque[happened.Event] = deque()
        self._poller = zmq.Poller()
        self._polled: tuple[tuple[zmq.Socket[bytes], ...], int, bool] = ((), -1, False)
        self._connect_at: float | None = None
        self._is_enrolling = False
        self._tick_at = self._look_at = self._safety_at = 0.0
        self._address_number = 0
        self._rise_by: float | None = None
        self._end_code = 0
        self._bad_frames: set[str] = set()
        self.end_reason: str | None = None
        """Why it ended."""

    # --- life ----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to end; return the exit code."""
        self._watch_signals()
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
        """Find the keeper, and begin to connect."""
        self._attach("agent and keeper were lost")
        self._handle(happened.Began(at=time.monotonic(), boot=time.clock_gettime(time.CLOCK_BOOTTIME)))

    def _turn(self) -> None:
        ready = dict(self._poll().poll(self.timeout_ms()))
        if self._wake.fileno() in ready:
            self._wake.recv(4096)
            self._tick_at = time.monotonic()
        has_frames = not ready.keys().isdisjoint(self._link.sockets)
        self.serve(link=has_frames, keeper=self._keeper.fileno() in ready, output=self._watch.fileno() in ready)

    def serve(self, *, link: bool, keeper: bool, output: bool) -> None:
        """Take in what is there to be read, do what is due, and send what came of it."""
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

    def _poll(self) -> zmq.Poller:
        """Return the poller for what is open now; made anew only when that changed."""
        polled = (self._link.sockets, self._keeper.fileno(), self._keeper.has_outgoing)
        if polled != self._polled:
            self._polled = polled
            self._poller = zmq.Poller()
            for connection in self._link.sockets:
                self._poller.register(connection, zmq.POLLIN)
            self._poller.register(self._keeper.fileno(), zmq.POLLIN | (zmq.POLLOUT if self._keeper.has_outgoing else 0))
            for part in (self._watch, self._wake, self._jobs):
                if part is not None:
                    self._poller.register(part.fileno(), zmq.POLLIN)
        return self._poller

    def timeout_ms(self) -> int:
        """Return how long nothing needs to be done, if nothing comes."""
        if self._machine.may_ship and self._shipper.has_more:
            return 0
        wait_s = min(self._tick_at, self._connect_at or self._tick_at) - time.monotonic()
        return max(0, int(wait_s * 1000) + 1)

    def _watch_signals(self) -> None:
        self._wake.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._config.is_embedded else self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._events.append(happened.EndAsked(at=time.monotonic(), reason=f"Stopped by {signal.Signals(number).name}."))

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._keeper.put(keeper.Leave())
        self._keeper.flush()
        self._keeper.detach()
        own = (self._link, self._sampler, self._checks, self._meetings, self._jobs, self._watch, self._spool, self._files)
        for part in (*own, self._wake, self._wake_writer):
            if part is not None:
                part.close()

    # --- what happens ----------------------------------------------------------------------------------

    def _handle(self, event: happened.Event) -> None:
        self._events.append(event)
        while self._events:
            for command in self._machine.handle(self._events.popleft()):
                self._carry_out(command)

    def _read_link(self, now: float) -> None:
        for event in self._link.events():
            if event.is_up:
                self._rise_by = None
                self._handle(happened.LinkRose(at=now))
            else:
                # The last words of a master that stopped are still there to be read.
                self._read_frames(now)
                self._link.drop()
                self._look_around()
                may_enrol = self._where.enrol_keys is not None
                fell = happened.LinkFell(at=now, may_enrol=may_enrol, keys_refused=event.keys_refused, hung_up=event.hung_up)
                self._handle(fell)
        self._read_frames(now)

    def _read_frames(self, now: float) -> None:
        for frame in self._link.receive():
            try:
                epoch, message = codec.decode_to_agent(frame)
            except RemoteProtocolError as error:
                # Once for each kind: a master that talks nonsense must not fill this node's disk.
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
                    self._handle(happened.LaunchFailed(at=now, key=key, code=code, message=text, fault=fault, exit_code=exit_code))
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
        # Those without a process have a prolog that runs: their launch is answered when it is over.
        statuses = tuple(self._status(record) for record in snapshot.tasks if record.pid or record.ended_at is not None)
        self._handle(happened.KeeperAttached(at=time.monotonic(), facts=facts, tasks=statuses))
        self._read_keeper(time.monotonic())

    def _status(self, record: keeper.TaskRecord) -> TaskStatus:
        self._stems.setdefault(record.key, {})[record.rank] = record.spool
        self._files.results.note(record)
        used = self._usage.of(record.key)
        return status_of(record, used, node_id=self._config.node_id, host=record.host or self._host, address=self._address)

    def _keep_time(self, now: float) -> None:
        ready, failed = self._files.turn(now, may_tell=self._machine.may_ship)
        self._events.extend(failed)
        for command in ready:
            self._carry_out(command)
        if self._connect_at is not None and now >= self._connect_at:
            self._connect()
        if self._rise_by is not None and now >= self._rise_by:
            self._address_number += 1
            self._connect()
        if now >= self._safety_at:
            self._safety_at = now + SAFETY_S
            self._shipper.grew(None)
            self._shipper.check_stalled(now)
            self._shipper.release(now)
            self._files.ask_again(all_of_them=False)
            self._keeper.reap()
        if now >= self._look_at and not self._machine.may_ship:
            self._look_at = now + LOOK_AROUND_S
            self._look_around()
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
                    may_enrol=self._where.enrol_keys is not None,
                    samples=readings.samples,
                    read_at=readings.begun_at,
                    measured=self._gauge.read(now),
                    ailments=self._checks.take(),
                )
            )
        for met in self._meetings.take():
            self._handle(happened.PeersMet(at=now, met=met))
        while self._events:  # what a signal handler put there
            self._handle(self._events.popleft())

    def _look_around(self) -> bool:
        """Read the runtime file again: a master that started anew may have another address or key. Tell whether it has."""
        found = self._look(self._identity.enrolment, self._identity.join)
        if found is None or found == self._where:
            return False
        before, self._where = self._where, found
        if found.target == before.target:
            return False
        log.info("master_moved address=%s", found.target.address)
        is_another = found.target.server_key != before.target.server_key
        self._handle(happened.MasterMoved(at=time.monotonic(), is_another=is_another))
        return True

    # --- what is to be done ------------------------------------------------------------------------------

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
                if self._prepare(spec) is not None:
                    self._events.append(self._open_meeting(spec) if meets else happened.LaunchPrepared(at=time.monotonic(), key=spec.key))
            case do.MeetPeers(message=message):
                self._meetings.meet(message)
            case do.RenewLeases(alive_at=alive_at):
                self._keeper.put(keeper.MasterAlive(alive_at=alive_at))
            case do.FollowOutput(status=status):
                self._shipper.follow(status, self._stems[status.key][status.rank])
                log.debug("task key=%s rank=%d pid=%d exit_code=%s", status.key, status.rank, status.pid, status.exit_code)
            case do.TellWho(number=number, statuses=statuses, cell=cell):
                who = (number, self._config.node_id, self._address, self._where.target.address, statuses)
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
                self._link.drop()
                self._is_enrolling = enrolling
                self._connect_at = time.monotonic() + delay_s
            case do.SaveEnrolment():
                self._save_enrolment()
            case do.SaveMasterEpoch():
                enrolment = self._identity.enrolment
                if enrolment is not None and enrolment.link_public_key == self._where.target.server_key:
                    self._save_enrolment()
            case do.Say(event=name, fields=fields, is_warning=is_warning):
                words = "".join(f" {key}={value!r}" for key, value in fields.items())
                log.log(logging.WARNING if is_warning else logging.INFO, "%s%s", name, words)
            case do.End(reason=reason, code=code):
                self.end_reason, self._end_code = reason, code
            case _:
                assert_never(command)

    def _prepare(self, spec: LaunchSpec) -> keeper.StartTasks | None:
        """Return what the keeper should start; None when it cannot, which is an event then."""
        start = self._preparation.prepare(spec, by_uuid=self._machine.has_lost_gpu)
        if not isinstance(start, Unprepared):
            return start
        failure = happened.LaunchFailed(
            at=time.monotonic(), key=spec.key, code=start.code, message=start.message, fault=start.fault, exit_code=start.exit_code
        )
        self._events.append(failure)
        return None

    def _open_meeting(self, spec: LaunchSpec) -> happened.Event:
        """Begin to wait for the other nodes of an attempt that could be started here."""
        try:
            return happened.LaunchPrepared(at=time.monotonic(), key=spec.key, offer=self._meetings.open(spec))
        except OSError as error:
            text = f"The node has no port for the other nodes to come to: {error}."
            return happened.LaunchFailed(at=time.monotonic(), key=spec.key, code="no-port", message=text, fault="node")

    def _connect(self) -> None:
        self._connect_at = self._rise_by = None
        if self._look_around():  # it had moved: a new wish to connect is under way
            return
        keys = self._where.enrol_keys if self._is_enrolling else self._identity.keys
        if keys is None:  # the runtime file is gone: look again later
            self._connect_at = time.monotonic() + LOOK_AROUND_S
            return
        self._link.open(self._where.target_at(self._address_number), keys)
        if len(self._where.addresses) > 1:
            self._rise_by = time.monotonic() + ADDRESS_TRY_S

    def _save_enrolment(self) -> None:
        target = self._where.target
        epoch = self._machine.master_epoch
        self._identity.save(
            Enrolment(
                link_address=target.address,
                link_public_key=target.server_key,
                port=self._where.port,
                master_epoch=epoch,
                addresses=self._where.addresses,
                is_joined=self._where.is_joined,
            )
        )
        self._identity.forget_join()

    def _flush(self) -> None:
        """Send what was gathered: starts to the keeper, output and then reports to the master."""
        if self._keeper.has_outgoing and not self._keeper.flush():
            self._lose_keeper(time.monotonic())
        self._outbox.flush(self._machine.master_epoch, may_ship=self._machine.may_ship)
