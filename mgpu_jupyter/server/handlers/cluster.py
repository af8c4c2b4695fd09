"""The pool itself: health, numbers, nodes, users, its past, and the document that describes the API."""

from __future__ import annotations

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import administration, histories, models
from mgpu_jupyter.api.administration import NewUser
from mgpu_jupyter.api.openapi import document
from mgpu_jupyter.master.node_calls import OrderWish
from mgpu_jupyter.master.node_views import NodeView, notice
from mgpu_jupyter.master.views import free_gpus, node_view, site_view
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.server import access
from mgpu_jupyter.server.cluster_file import node_warnings
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.server.handlers.reading import job_id_of
from mgpu_jupyter.server.limits import Cost
from mgpu_jupyter.server.tracing import ping_node
from mgpu_jupyter.server.upstream import Upstream


class HealthHandler(Guarded):
    """State of the master, also when there is none."""

    path = "health"
    works_without_master = True

    async def relay(self, upstream: Upstream) -> None:
        """Answer here, with this server's own state and the master's."""

    async def get(self) -> None:
        """Answer with what is wrong, if anything is."""
        upstream = self.extension.upstream
        self.answer(self.extension.health() if upstream is None else await upstream.health_through())


class ClusterHandler(Guarded):
    """The pool in numbers."""

    path = "cluster"

    def get(self) -> None:
        """Count nodes, GPUs and jobs."""
        nodes = self.service.master.nodes()
        online = [node for node in nodes if node.state == NodeState.ONLINE]
        cluster = models.Cluster(
            name=self.service.settings.link.cluster,
            user=self.person.name,
            admin=self.person.is_admin,
            nodes=len(nodes),
            nodes_online=len(online),
            gpus=sum(len(node.facts.gpus) for node in nodes),
            gpus_free=sum(free_gpus(node) for node in online),
            simulated=any(gpu.simulated for node in nodes for gpu in node.facts.gpus),
            jobs=self.service.reader.count_active(),
            notice=notice([(node.id, node.facts) for node in nodes]),
            seq=self.service.master.seq,
            privacy=self.service.settings.privacy,
        )
        self.answer(site_view(cluster, self.service.site, self.person.name))


class OpenApiHandler(Guarded):
    """The document that describes this API."""

    path = "openapi.json"
    works_without_master = True

    def get(self) -> None:
        """Generate it from the route table."""
        self.answer(document())


class NodesBase(Guarded):
    """What handlers of nodes have in common."""

    def view(self, node: NodeView) -> models.Node:
        """Return a node as everyone may see it, with how it differs from the cluster's file."""
        return node_view(node, node_warnings(self.service.settings.expected, node.facts, node.id))


class NodesHandler(NodesBase):
    """All nodes."""

    path = "nodes"

    def get(self) -> None:
        """List nodes and their GPUs."""
        nodes = self.service.master.nodes()
        known = {node.id for node in nodes}
        expected = tuple(
            models.ExpectedNode(
                id=one.node_id,
                host=one.hostname,
                address=one.ip,
                port=one.port,
                gpu_count=one.gpu_count,
                gpu_type=one.gpu_type,
            )
            for one in self.service.settings.expected
            if one.node_id not in known
        )
        self.answer(models.NodeList(nodes=tuple(self.view(node) for node in nodes), expected=expected))


class NodeHandler(NodesBase):
    """One node."""

    path = "nodes/{node_id}"

    def get(self, node_id: str) -> None:
        """Show a node and its GPUs."""
        self.answer(self.view(self.node(node_id)))

    async def patch(self, node_id: str) -> None:
        """Carry out an administrator's order about a node."""
        self.person.check_is_admin("administer nodes")
        body = self.read_body(administration.NodeAction)
        if body.action != "revoke":
            wish = OrderWish(
                action=body.action,
                reason=body.reason,
                users=body.users,
                accounts=body.accounts,
                labels=body.labels,
            )
            message = await self.service.order_node(self.person, NodeId(node_id), wish)
        elif body.users or body.accounts or body.labels:
            raise InvalidRequest(
                "names-not-used",
                "Users, accounts and labels go with other actions: leave them out of revoke.",
            )
        else:
            message = await self.service.revoke_node(self.person, NodeId(node_id), body.reason)
        self.answer(
            administration.NodeActionAnswer(node_id=NodeId(node_id), action=body.action, message=message)
        )

    async def delete(self, node_id: str) -> None:
        """Forget a node that is offline and holds nothing."""
        self.person.check_is_admin("administer nodes")
        message = await self.service.order_node(self.person, NodeId(node_id), OrderWish(action="remove"))
        self.answer(
            administration.NodeActionAnswer(node_id=NodeId(node_id), action="remove", message=message)
        )


class OutlookHandler(Guarded):
    """The jobs that are expected on one node."""

    path = "nodes/{node_id}/outlook"
    cost = Cost.HEAVY

    async def get(self, node_id: str) -> None:
        """Look ahead; the queue is visible to all, and so is its outlook."""
        self.answer(await self.service.explainer.node(self.node(node_id).id))


class PingHandler(Guarded):
    """A ping of one node."""

    path = "nodes/{node_id}/ping"
    cost = Cost.HEAVY

    async def post(self, node_id: str) -> None:
        """Ask its agent through the link and return its answer."""
        self.answer(await ping_node(self.service.ping, self.node(node_id), self.service.clock))


class JoinTokensHandler(Guarded):
    """Join lines for new machines."""

    path = "join-tokens"

    async def post(self) -> None:
        """Make a line with which one machine can join once."""
        self.person.check_is_admin("let machines join")
        self.answer(
            await self.service.join_token(self.person, self.read_body(administration.JoinTokenRequest)), 201
        )


DEFAULT_POINTS = 300
DAY_S = 86_400
NODE_SPAN_S = 600


class _History(Guarded):
    """What all histories have in common."""

    def span(self, default: int) -> int:
        """Return how far to look back, in seconds."""
        return self.number("span", default, histories.LEAST_SPAN_S, histories.MAX_SPAN_S)

    def points(self) -> int:
        """Return the largest number of points."""
        return self.number("points", DEFAULT_POINTS, 1, histories.MAX_POINTS)


class ClusterHistoryHandler(_History):
    """The history of the cluster."""

    path = "cluster/history"

    async def get(self) -> None:
        """Return what was in use, waited and ended."""
        self.answer(await self.service.live.cluster(self.person.name, self.span(DAY_S), self.points()))


class NodeHistoryHandler(_History):
    """The history of one node."""

    path = "nodes/{node_id}/history"

    def get(self, node_id: str) -> None:
        """Return its readings."""
        self.answer(self.service.live.node(self.node(node_id), self.span(NODE_SPAN_S), self.points()))


class UsageHandler(_History):
    """The GPU usage of one job."""

    path = "jobs/{job_id}/usage"

    def get(self, job_id: str) -> None:
        """Return how it used its GPUs."""
        self.answer(self.service.live.usage(self.service.saved_job(job_id_of(job_id)).job, self.points()))


class UsersHandler(Guarded):
    """All users."""

    path = "users"

    def get(self) -> None:
        """List users by name."""
        self.person.check_is_admin("administer users")
        self.answer(access.listed(self.service.reader))

    async def post(self) -> None:
        """Add a user; the login line is in this answer and nowhere else."""
        self.person.check_is_admin("administer users")
        wanted = self.read_body(NewUser)
        change = access.adding(
            wanted, self.extension.access, self.extension.public_url_now(), self.extension.certificate_pin
        )
        self.set_header("Cache-Control", "no-store")
        self.answer(await self.service.write(change), 201)


class UserHandler(Guarded):
    """One user."""

    path = "users/{user_name}"

    async def delete(self, user_name: str) -> None:
        """Remove a user and all their logins; their connections end, too."""
        self.person.check_is_admin("administer users")
        removed = await self.service.write(access.removing(user_name))
        self.extension.end_streams_of(user_name)
        self.answer(removed)
