"""One small class per path; `ALL` lists them for the application."""

from __future__ import annotations

from mgpu_jupyter.server.handlers.base import Guarded, Unknown
from mgpu_jupyter.server.handlers.cluster import (
    ClusterHandler,
    HealthHandler,
    JoinTokensHandler,
    NodeHandler,
    NodesHandler,
    OpenApiHandler,
    OutlookHandler,
    PingHandler,
)
from mgpu_jupyter.server.handlers.folders import MissingHandler, PiecesHandler
from mgpu_jupyter.server.handlers.histories import ClusterHistoryHandler, NodeHistoryHandler, UsageHandler
from mgpu_jupyter.server.handlers.jobs import (
    BulkHandler,
    CancelHandler,
    DryRunHandler,
    ExplainHandler,
    JobHandler,
    JobsHandler,
    PurgeHandler,
    RequeueHandler,
    RerunHandler,
    TraceHandler,
)
from mgpu_jupyter.server.handlers.lines import ParseHandler
from mgpu_jupyter.server.handlers.output import OutputHandler
from mgpu_jupyter.server.handlers.replacing import ReplaceHandler
from mgpu_jupyter.server.handlers.results import ResultHandler, ResultsHandler, SummaryHandler
from mgpu_jupyter.server.handlers.sockets import EventsHandler, JobStreamHandler
from mgpu_jupyter.server.handlers.users import UserHandler, UsersHandler
from mgpu_jupyter.server.handlers.variables import PythonsHandler, ValuesHandler

ALL: tuple[type[Guarded], ...] = (
    HealthHandler,
    ClusterHandler,
    ClusterHistoryHandler,
    OpenApiHandler,
    NodesHandler,
    NodeHandler,
    NodeHistoryHandler,
    OutlookHandler,
    PingHandler,
    JoinTokensHandler,
    JobsHandler,
    BulkHandler,
    DryRunHandler,
    ParseHandler,
    PurgeHandler,
    ExplainHandler,
    TraceHandler,
    JobHandler,
    CancelHandler,
    RequeueHandler,
    RerunHandler,
    ReplaceHandler,
    OutputHandler,
    ResultsHandler,
    ResultHandler,
    SummaryHandler,
    UsageHandler,
    MissingHandler,
    PiecesHandler,
    ValuesHandler,
    PythonsHandler,
    UsersHandler,
    UserHandler,
    JobStreamHandler,
    EventsHandler,
)

__all__ = ["ALL", "Guarded", "Unknown"]
