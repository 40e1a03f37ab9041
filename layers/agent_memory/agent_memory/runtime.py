"""The deployment as handlers see it: adapters made from the environment, and the agents that were written for it.

Everything is made on first use and kept for the life of the process; `configure` puts other adapters in their place
(the local stack and tests do).
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent_memory.agent.services import Services
from agent_memory.errors import ConfigurationError, NotFoundError
from agent_memory.file_rules import FileRules
from agent_memory.settings import Settings

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.ports import (
        BlobStore,
        Dispatcher,
        Embedder,
        FileStore,
        JobStore,
        MessageStore,
        Quota,
        RunStore,
        VectorIndex,
    )
    from agent_memory.ports.signing import Signer


_lock = threading.RLock()
_deployment: Deployment | None = None
_agents: dict[str, Agent] | None = None


class Deployment:
    """The adapters that the settings ask for, each made when it is first used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def blobs(self) -> BlobStore | None:
        """Attachments and overflow bodies; None without a bucket."""
        if not self.settings.attachments_bucket:
            return None
        from agent_memory.aws.clients import client
        from agent_memory.aws.s3 import S3BlobStore

        return S3BlobStore(client("s3"), self.settings.attachments_bucket)

    @cached_property
    def dynamodb(self) -> Any:
        """The client of all tables; with an owner's role, requests for an end user are signed with that owner's credentials."""
        from agent_memory.aws.clients import client

        own = client("dynamodb")
        if self.settings.owner_role_arn is None:
            return own
        from agent_memory.aws.owner_access import OwnerClient, OwnerCredentials, scoped_client

        credentials = OwnerCredentials(client("sts"), self.settings.owner_role_arn)
        return OwnerClient(own, scoped_client(credentials), self.settings.claims_table)

    @cached_property
    def store(self) -> MessageStore:
        """Threads, messages and working memory."""
        from agent_memory.aws.dynamodb import DynamoMessageStore

        settings = self.settings
        return DynamoMessageStore(
            self.dynamodb,
            threads_table=settings.required("threads_table"),
            messages_table=settings.required("messages_table"),
            claims_table=settings.claims_table,
            runs_table=settings.runs_table,
            blobs=self.blobs,
            retention_days=settings.retention_days or None,
        )

    @cached_property
    def files(self) -> FileStore | None:
        """What is known of files; None without a bucket, or without a table for it."""
        settings = self.settings
        if self.blobs is None or not settings.runs_table:
            return None
        from agent_memory.aws.dynamodb.files import DynamoFileStore

        return DynamoFileStore(self.dynamodb, runs_table=settings.runs_table, threads_table=settings.threads_table)

    @cached_property
    def file_rules(self) -> FileRules:
        """What files are taken."""
        settings = self.settings
        return FileRules(
            max_bytes=settings.max_attachment_bytes,
            max_files=settings.max_attachments,
            types=settings.attachment_types,
            denied_types=settings.attachment_types_denied,
            fetch_remote=settings.fetch_remote_attachments,
        )

    @cached_property
    def runs(self) -> RunStore:
        """Suspended runs, chunks, stop flags, results by idempotency key."""
        from agent_memory.aws.dynamodb.runs import DynamoRunStore

        return DynamoRunStore(
            self.dynamodb,
            runs_table=self.settings.required("runs_table"),
            claims_table=self.settings.claims_table,
            blobs=self.blobs,
        )

    @cached_property
    def jobs(self) -> JobStore | None:
        """Work of the janitor; None without a table for it."""
        if not self.settings.runs_table:
            return None
        from agent_memory.aws.dynamodb.jobs import DynamoJobStore

        return DynamoJobStore(self.dynamodb, runs_table=self.settings.runs_table)

    @cached_property
    def quota(self) -> Quota | None:
        """Limits of each resource; None where none is set."""
        settings = self.settings
        if not (settings.quota_turns_per_minute or settings.quota_tokens_per_day):
            return None
        from agent_memory.aws.dynamodb.quota import DynamoQuota

        return DynamoQuota(
            self.dynamodb,
            runs_table=settings.required("runs_table"),
            turns_per_minute=settings.quota_turns_per_minute,
            tokens_per_day=settings.quota_tokens_per_day,
        )

    @cached_property
    def embedder(self) -> Embedder | None:
        """The embedder of semantic recall; None where none is set."""
        if not self.settings.embedder:
            return None
        from agent_memory.recall.resolve import resolve_embedder

        return resolve_embedder(self.settings.embedder)

    @cached_property
    def index(self) -> VectorIndex | None:
        """The vector index of semantic recall; None where neither an index nor an embedder is set."""
        from agent_memory.recall.resolve import resolve_index

        return None if self.embedder is None else resolve_index(self.settings, self.embedder)

    @cached_property
    def next_embedder(self) -> Embedder | None:
        """The embedder that a re-index changes to; None where none is under way."""
        if not self.settings.next_embedder or self.embedder is None:
            return None
        from agent_memory.recall.resolve import resolve_embedder

        return resolve_embedder(self.settings.next_embedder)

    @cached_property
    def next_index(self) -> VectorIndex | None:
        """The index of `next_embedder`."""
        from agent_memory.recall.resolve import resolve_index

        return None if self.next_embedder is None else resolve_index(self.settings, self.next_embedder)

    @cached_property
    def dispatcher(self) -> Dispatcher | None:
        """Asynchronous invokes of the other functions; None where none is named."""
        settings = self.settings
        functions = {
            "chat": settings.chat_function,
            "titles": settings.titles_function,
            "janitor": settings.janitor_function,
        }
        if not any(functions.values()):
            return None
        from agent_memory.aws.dispatcher import LambdaDispatcher

        return LambdaDispatcher(functions)

    @cached_property
    def signer(self) -> Signer | None:
        """The key of receipts; None where none is set."""
        if self.settings.receipt_key_arn:
            from agent_memory.aws.clients import client
            from agent_memory.aws.kms import KmsSigner

            return KmsSigner(client("kms"), self.settings.receipt_key_arn)
        if self.settings.receipt_key_path:
            from agent_memory.local.signing import FileSigner

            return FileSigner(self.settings.receipt_key_path)
        return None

    @cached_property
    def services(self) -> Services:
        """All of it, for agents."""
        from agent_memory.aws.clients import meter

        return Services(
            store=self.store,
            runs=self.runs,
            jobs=self.jobs,
            quota=self.quota,
            blobs=self.blobs,
            files=self.files,
            file_rules=self.file_rules,
            index=self.index,
            embedder=self.embedder,
            next_index=self.next_index,
            next_embedder=self.next_embedder,
            dispatcher=self.dispatcher,
            signer=self.signer,
            model=self.settings.model,
            meter=meter,
        )


def deployment() -> Deployment:
    """The deployment of this process, made from the environment on first use."""
    global _deployment
    with _lock:
        if _deployment is None:
            _deployment = Deployment(Settings.from_env())
        return _deployment


def services() -> Services:
    """The adapters of this process's deployment."""
    return deployment().services


def configure(chosen: Deployment | None, agents: dict[str, Agent] | None = None) -> None:
    """Put another deployment (and other agents) in place of what the environment would give; None starts afresh."""
    global _deployment, _agents
    with _lock:
        _deployment = chosen
        _agents = None
        if agents is not None and chosen is not None:
            _agents = {key: agent.bind(chosen.services) for key, agent in agents.items()}


def agents() -> dict[str, Agent]:
    """All agents by id: those at the top level of the agents module."""
    global _agents
    with _lock:
        if _agents is None:
            _agents = {agent.id: agent.bind(services()) for agent in _load(deployment().settings.agents_module)}
        return _agents


def get_agent(agent_id: str) -> Agent:
    """An agent by id. Raises NotFoundError."""
    found = agents().get(agent_id)
    if found is None:
        raise NotFoundError("Agent not found", code="AGENT_NOT_FOUND")
    return found


def _load(module_name: str) -> list[Agent]:
    from importlib import import_module

    from agent_memory.agent.agent import Agent

    module = import_module(module_name)
    found = [value for value in vars(module).values() if isinstance(value, Agent)]
    ids = [agent.id for agent in found]
    double = next((agent_id for agent_id in ids if ids.count(agent_id) > 1), None)
    if double is not None:
        raise ConfigurationError(f"two agents of module {module_name} have the id {double}; ids must differ")
    if not found:
        raise ConfigurationError(f"module {module_name} holds no Agent; write one there")
    return found
