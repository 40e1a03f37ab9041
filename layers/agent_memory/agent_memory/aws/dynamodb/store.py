"""The message store on DynamoDB, put together from its parts."""

from __future__ import annotations

from agent_memory.aws.dynamodb.erasure import Erasure
from agent_memory.aws.dynamodb.messages import Messages
from agent_memory.aws.dynamodb.restores import Restores
from agent_memory.aws.dynamodb.saves import Saves
from agent_memory.aws.dynamodb.turns import Turns
from agent_memory.aws.dynamodb.working_memory import WorkingMemory


class DynamoMessageStore(Turns, Messages, Saves, Restores, Erasure, WorkingMemory):
    """`MessageStore` on two DynamoDB tables, a third for claims where callers name resources, and a bucket.

    Safe to use from several threads. Beside the port it has `dead_threads`, which the janitor walks.
    """
