"""The store in memory, for simulation and tests. Keeps what it is given until the process ends."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import NodeFacts
from mgpu_jupyter.master.ports import (
    ANSWERS_REMEMBERED,
    ATTEMPTS_REMEMBERED,
    ENDED_REMEMBERED,
    JOIN_KEYS_REMEMBERED_S,
    LOCAL_SCOPE,
    Batch,
    JobFilter,
    JoinKey,
    Mark,
    NodeNotes,
    Recovered,
    SavedJob,
    SavedNode,
    SavedState,
    TokenRow,
    UserRow,
    assigned_in,
)
from mgpu_jupyter.model.display import VARIABLE as DISPLAY_KEY
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import FINAL_STATES, JobState
from mgpu_jupyter.scheduler.model import Job


class MemoryStore:
    """A store and its own reader; same answers as the one in SQLite."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, SavedJob] = {}
        self._attempts: dict[tuple[JobId, int], Job] = {}
        self._keys: dict[NodeId, str | None] = {}
        self._revoked: dict[NodeId, str] = {}
        self._join_keys: dict[str, JoinKey] = {}
        self._facts: dict[NodeId, NodeFacts] = {}
        self._notes: dict[NodeId, NodeNotes] = {}
        self._settings: dict[str, str] = {}
        self._tokens: dict[bytes, TokenRow] = {}
        self._users: dict[str, UserRow] = {}
        self._memos: dict[str, str] = {}
        self._answers: list[tuple[str, Record]] = []
        self._number = 0
        """The highest number of a job that may have been forgotten."""
        self._marks: dict[tuple[JobId, int, str, str], Mark] = {}

    def recover(self) -> Recovered:
        """Return all that a new master must know."""
        return Recovered(
            jobs=tuple(saved.job for saved in self._jobs.values() if not saved.job.state.is_final),
            nodes=tuple(
                SavedNode(
                    id=node_id,
                    public_key=key,
                    facts=self._facts.get(node_id),
                    revoked=self._revoked.get(node_id, ""),
                    notes=self._notes.get(node_id, NodeNotes()),
                )
                for node_id, key in self._keys.items()
            ),
            join_keys=tuple(sorted(self._join_keys.values(), key=lambda key: key.created_at)),
            epoch=int(self._settings.get("epoch", "0")),
            number=max(self._number, *(saved.job.number for saved in self._jobs.values()), 0),
            memos=dict(self._memos),
            ended=tuple(saved.job for saved in self._jobs.values() if saved.job.state.is_final)[
                -ENDED_REMEMBERED:
            ],
        )

    def next_master_epoch(self) -> int:
        """Raise the master epoch and return it."""
        epoch = int(self._settings.get("master_epoch", "0")) + 1
        self._settings["master_epoch"] = str(epoch)
        return epoch

    def commit(self, batch: Batch) -> None:
        """Keep a batch."""
        self._jobs.update(batch.jobs)
        self._attempts.update({(job.id, job.attempt): job for job in batch.attempts})
        self._facts.update(batch.nodes)
        self._notes.update(batch.notes)
        self._revoked.update(batch.revoked)
        self._keys.update(dict.fromkeys(batch.revoked))
        self._memos.update(batch.memos)
        for node_id in batch.removed:
            for kept in (self._keys, self._facts, self._notes, self._revoked):
                kept.pop(node_id, None)
        for key, record in batch.answers:
            of_key = [one for one in self._answers if one[0] == key]
            if len(of_key) >= ANSWERS_REMEMBERED:
                self._answers.remove(of_key[0])
            self._answers.append((key, record))
        for mark in batch.marks:
            self._marks.setdefault((mark.job_id, mark.attempt, mark.step, mark.who), mark)
        self._settings["epoch"] = str(batch.epoch)

    def find_job(self, job_id: JobId) -> Job | None:
        """Return one job."""
        saved = self._jobs.get(job_id)
        return None if saved is None else saved.job

    def find_by_key(self, user: str, key: str) -> Job | None:
        """Return the job that this user submitted under this key."""
        return next(
            (saved.job for saved in self._jobs.values() if (saved.job.user, saved.job.key) == (user, key)),
            None,
        )

    def find_array(self, array_id: str) -> list[Job]:
        """Return the jobs of an array, in the order of their numbers."""
        found = (
            saved.job
            for saved in self._jobs.values()
            if saved.job.array is not None and saved.job.array.id == array_id
        )
        return sorted(found, key=lambda job: job.number)

    def forget_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Delete all records of jobs that are over; their numbers are never used again."""
        self._number = max(self._number, *(saved.job.number for saved in self._jobs.values()), 0)
        for job_id in job_ids:
            self._jobs.pop(job_id, None)
        gone = set(job_ids)
        self._attempts = {key: job for key, job in self._attempts.items() if key[0] not in gone}
        self._answers = [(key, record) for key, record in self._answers if key not in gone]
        self._marks = {key: mark for key, mark in self._marks.items() if key[0] not in gone}

    def drop_values(self, ended_before: float, after: int = 0) -> tuple[int, int]:
        """Delete `--env` values of jobs that ended before then; return how many, and where to continue
        (always the end).
        """
        count = 0
        for job_id, saved in self._jobs.items():
            job, env = saved.job, saved.job.spec.env
            is_old = (
                job.state.is_final
                and job.ended_at is not None
                and job.ended_at <= ended_before
                and job.number > after
            )
            if is_old and env and not saved.values_dropped:
                blank = {name: value if name == DISPLAY_KEY else "" for name, value in env.items()}
                self._jobs[job_id] = SavedJob(
                    replace(job, spec=replace(job.spec, env=blank)), saved.seq, True
                )
                count += 1
        return count, 0

    def assigned_nodes(self, key: AttemptKey) -> frozenset[NodeId]:
        """Return the nodes that this attempt was placed on, now or in the past."""
        saved = [self._jobs[key.job_id].job] if key.job_id in self._jobs else []
        return assigned_in((*saved, *self._attempts.values()), key)

    def bind_node_key(self, node_id: NodeId, public_key: str, join_key: str | None = None) -> None:
        """Bind a key to a node id in place of the one before; this uses up the join key."""
        self._keys = {name: key for name, key in self._keys.items() if key != public_key} | {
            node_id: public_key
        }
        self._revoked.pop(node_id, None)
        if join_key in self._join_keys:
            self._join_keys[join_key] = replace(self._join_keys[join_key], used_by=node_id)

    def add_join_key(self, key: JoinKey) -> None:
        """Keep a key for one enrolment; those that expired long ago are forgotten."""
        oldest = key.created_at - JOIN_KEYS_REMEMBERED_S
        self._join_keys = {name: one for name, one in self._join_keys.items() if one.expires_at >= oldest} | {
            key.public_key: key
        }

    def setting(self, name: str) -> str | None:
        """Return the value kept under this name."""
        return self._settings.get(name)

    def set_setting(self, name: str, value: str) -> None:
        """Keep a value under this name."""
        self._settings[name] = value

    def add_token(self, token: TokenRow) -> None:
        """Keep a token's hash."""
        self._tokens[token.hash] = token

    def add_user(self, user: UserRow, token: TokenRow) -> None:
        """Keep a new user and the token to log in with."""
        self._users[user.name] = user
        self.add_token(token)

    def remove_user(self, name: str) -> None:
        """Forget a user and all tokens they were given."""
        self._users.pop(name, None)
        self._tokens = {
            key: row for key, row in self._tokens.items() if row.user != name or row.scope == LOCAL_SCOPE
        }

    def reader(self) -> MemoryStore:
        """Return itself."""
        return self

    def job(self, job_id: JobId) -> SavedJob | None:
        """Return one job."""
        return self._jobs.get(job_id)

    def states_of(self, job_ids: Sequence[JobId]) -> dict[JobId, SavedState]:
        """Return the state of each of these jobs; unknown ones are left out."""
        known = [self._jobs[job_id].job for job_id in job_ids if job_id in self._jobs]
        return {job.id: SavedState(job.state, job.exit_code) for job in known}

    def jobs(self, wanted: JobFilter) -> list[SavedJob]:
        """Return a page, newest first."""
        found = [
            saved
            for saved in self._jobs.values()
            if (not wanted.states or saved.job.state in wanted.states)
            and wanted.user in (None, saved.job.user)
            and wanted.name in (None, saved.job.spec.name)
            and (not wanted.ids or saved.job.id in wanted.ids)
            and wanted.array in (None, saved.job.array.id if saved.job.array else None)
            and wanted.notebook in (None, saved.job.spec.origin.notebook if saved.job.spec.origin else None)
            and (wanted.since is None or saved.job.submitted_at >= wanted.since)
            and (wanted.before is None or saved.job.number < wanted.before)
        ]
        return sorted(found, key=lambda saved: -saved.job.number)[: wanted.limit]

    def changed_since(self, seq: int, limit: int) -> list[SavedJob]:
        """Return jobs that changed after `seq`, in the order of their last change."""
        return sorted(
            (saved for saved in self._jobs.values() if saved.seq > seq), key=lambda saved: saved.seq
        )[:limit]

    def count_active(self) -> dict[str, int]:
        """Return how many jobs are in each state that is not final."""
        counts = {state.value: 0 for state in JobState if state not in FINAL_STATES}
        for saved in self._jobs.values():
            if not saved.job.state.is_final:
                counts[saved.job.state.value] += 1
        return counts

    def oldest_ended(self, after: int, limit: int) -> list[SavedJob]:
        """Return ended jobs with numbers larger than `after`, the first submitted first."""
        found = [
            saved for saved in self._jobs.values() if saved.job.state.is_final and saved.job.number > after
        ]
        return sorted(found, key=lambda saved: saved.job.number)[:limit]

    def count_ended(self) -> int:
        """Return how many jobs are over."""
        return sum(saved.job.state.is_final for saved in self._jobs.values())

    def answers(self, keys: Sequence[str]) -> list[Record]:
        """Return what was recorded under these names, oldest first."""
        return [record for key, record in self._answers if key in keys]

    def attempts(self, job_id: JobId) -> list[Job]:
        """Return a job's earlier attempts, oldest first, each as the job was at its end."""
        found = (job for job in self._attempts.values() if job.id == job_id)
        return sorted(found, key=lambda job: job.attempt)[-ATTEMPTS_REMEMBERED:]

    def marks(self, job_id: JobId) -> list[Mark]:
        """Return the steps of a job that were seen, in the order of time."""
        saved = self._jobs.get(job_id)
        kept = {job.attempt for job in self.attempts(job_id)} | ({saved.job.attempt} if saved else set())
        return sorted(
            (one for one in self._marks.values() if one.job_id == job_id and one.attempt in kept),
            key=lambda one: one.at,
        )

    def token(self, hash_: bytes) -> TokenRow | None:
        """Return the token with this hash."""
        return self._tokens.get(hash_)

    def users(self) -> list[UserRow]:
        """Return all users by name."""
        return [self._users[name] for name in sorted(self._users)]

    def user(self, name: str) -> UserRow | None:
        """Return one user."""
        return self._users.get(name)

    def close(self) -> None:
        """Do nothing: nothing is open."""
