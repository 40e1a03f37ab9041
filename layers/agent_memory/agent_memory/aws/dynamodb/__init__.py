"""Threads, messages, working memory and runs in DynamoDB."""

from agent_memory.aws.dynamodb.runs import DynamoRunStore
from agent_memory.aws.dynamodb.store import DynamoMessageStore

__all__ = ["DynamoMessageStore", "DynamoRunStore"]
