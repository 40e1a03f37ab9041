"""Tables with their stream on the emulator, the indexer behind it, and the jobs that look after the index."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import uuid
from datetime import datetime
from types import SimpleNamespace

from agent_memory import clock, runtime
from agent_memory.aws.dynamodb import DynamoMessageStore, DynamoRunStore, keys
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.aws.dynamodb.values import to_item
from agent_memory.aws.opensearch import OpenSearchIndex, connect
from agent_memory.aws.s3 import S3BlobStore
from agent_memory.ids import new_id
from agent_memory.jobs.runner import run, start
from agent_memory.local.index import EmbeddedIndex
from agent_memory.messages import Message
from agent_memory.ports import MessageQuery
from agent_memory.recall.indexing import is_indexed
from agent_memory.settings import Settings
from infra.local.background import DeadLetters
from infra.local.streams import Checkpoints, StreamFeeder
from infra.local.template import ROOT, Template
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.opensearch_fake import OpenSearchFake
from tests.support.opensearch_node import node_url


@functools.cache
def indexer_app():
    """The function's module."""
    spec = importlib.util.spec_from_file_location("indexer_app", ROOT / "functions" / "indexer" / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def mapping():
    """The event source mapping of the template."""
    (found,) = Template(parameters={"Search": "existing", "OpenSearchUrl": "https://search.local"}).stream_mappings()
    return found


class Indexing:
    """A deployment whose stream is handed over when a test says so.

    Args:
        index, embedder: Those of the deployment.
        settle: Lets an index show what was written.
    """

    def __init__(self, index, embedder, *, settle=lambda: None):
        emulator = shared_emulator()
        self.dynamodb, self.s3 = emulator.client("dynamodb"), emulator.client("s3")
        self.names = tables.create(self.dynamodb, self.s3)
        self.blobs = S3BlobStore(self.s3, self.names.bucket)
        self.store = DynamoMessageStore(
            self.dynamodb,
            threads_table=self.names.threads,
            messages_table=self.names.messages,
            claims_table=self.names.claims,
            blobs=self.blobs,
        )
        self.settle = settle
        self.index, self.embedder = index, embedder
        self.deploy()
        arn = self.dynamodb.describe_table(TableName=self.names.messages)["Table"]["LatestStreamArn"]
        self._feeder = StreamFeeder(
            emulator.client("dynamodbstreams"), arn, mapping(), self._call, Checkpoints(None), DeadLetters(None)
        )
        self._numbers = itertools.count(1)
        self.events = []
        self.answers = []

    def deploy(self, index=None, embedder=None, next_index=None, next_embedder=None):
        """Put other settings into effect, as a deployment does."""
        self.index, self.embedder = index or self.index, embedder or self.embedder
        made = runtime.Deployment(Settings())
        made.__dict__.update(
            store=self.store,
            blobs=self.blobs,
            jobs=DynamoJobStore(self.dynamodb, runs_table=self.names.runs),
            runs=DynamoRunStore(self.dynamodb, runs_table=self.names.runs),
            index=self.index,
            embedder=self.embedder,
            next_index=next_index,
            next_embedder=next_embedder,
            files=None,
            dispatcher=None,
        )
        runtime.configure(made)

    def close(self):
        runtime.configure(None)

    # -- the stream

    def _call(self, _name, event):
        self.events.append(event)
        self.answers.append(self.change(event))
        return self.answers[-1]

    def change(self, event):
        """What the function answers to an event; tests put something else in its place."""
        return indexer_app().handler(event, SimpleNamespace(aws_request_id="request"))

    def deliver(self):
        """Hand over everything that is in the stream."""
        while self._feeder.poll():
            pass
        self.settle()

    # -- what happens in the table

    def save(self, *texts, thread="t", owner="r", stamp=True, role="user", **fields):
        """Messages of these texts at the end of a thread; their ids."""
        messages = [
            Message.text_message(role, text, id=f"m{next(self._numbers)}", created_at=clock.now(), **fields)
            for text in texts
        ]
        self.store.save_messages(owner, thread, messages, index=self.index.id if stamp is True else stamp)
        return [message.id for message in messages]

    def edit(self, message_id, text, *, thread="t", owner="r"):
        parts = Message.text_message("user", text, id=message_id).parts
        self.store.update_message(owner, thread, message_id, lambda old: old.with_parts(parts))

    def remove(self, *message_ids, thread="t", owner="r"):
        refs = [ref for ref in self.store.locate(owner, message_ids) if ref.thread_id == thread]
        assert self.store.delete_messages(owner, refs) == len(message_ids)

    def put_row(self, owner, thread, seq, message):
        """A row as a copy or an import writes it before its thread shows it."""
        fields = self.store._message_fields(owner, thread, message)
        key = {"pk": keys.messages_pk(owner, thread), "sk": seq}
        self.store._put_rows([to_item({**key, **fields, "index": self.index.id})])

    def live(self, *threads):
        """(resource, thread, id, number, version) of all messages with a text in these threads."""
        found = []
        for owner, thread in threads:
            header = self.store.get_thread(owner, thread)
            if header is not None:
                rows = self.store.list_messages(header, MessageQuery(per_page=None)).messages
                found += [(owner, thread, row.id, row.seq, row.version) for row in rows if is_indexed(row)]
        return sorted(found)

    # -- what is in the index

    def indexed(self, index=None):
        """The same of all entries of an index, which must be whole."""
        self.settle()
        found, after = [], None
        while True:
            page = (index or self.index).scan(after, 100)
            assert all(entry.whole for entry in page.entries)
            found += [(e.resource_id, e.thread_id, e.message_id, e.seq, e.version) for e in page.entries]
            after = page.next
            if after is None:
                return sorted(found)

    # -- jobs

    def job(self, kind, **params):
        """Run a job to its end, or to where it waits."""
        self.job_id = new_id("job-")
        return start(runtime.services(), kind, params, owner=None, job_id=self.job_id)

    def resume(self):
        """Run the last job again, as the next invocation does."""
        return run(runtime.services(), self.job_id, None)

    def keys(self, prefix):
        return list(self.blobs.list_keys(prefix))


@contextlib.contextmanager
def opened(kind, embedder):
    """An index of a kind, and what lets it show all that was written.

    ``embedded``; ``domain`` and ``collection`` of the stand-in for OpenSearch; ``node``, a real one.
    """
    if kind == "embedded":
        yield EmbeddedIndex(":memory:", embedder.id, embedder.dimension), lambda: None
        return
    options = {"alias": f"t-{uuid.uuid4().hex}", "sleep": lambda _: None}
    if kind == "node":
        client = connect(node_url(), timeout_s=30)
        names = f"{options['alias']}.*"
        index = OpenSearchIndex(client, embedder.id, embedder.dimension, engine="lucene", **options)
        try:
            yield index, lambda: client.indices.refresh(index=names)
        finally:
            client.indices.delete(index=names, ignore=[404])
        return
    fake = OpenSearchFake(serverless=kind == "collection")
    try:
        client = connect(fake.url)
        yield (
            OpenSearchIndex(client, embedder.id, embedder.dimension, serverless=fake.serverless, **options),
            fake.settle,
        )
    finally:
        fake.close()


def at(text: str) -> datetime:
    """A date."""
    return clock.parse(text)
