"""Quotas in RunsTable: one item for a resource and day.

::

    R#<resource>   Q#<yyyymmdd>   tokens, m<minute of the day>: turns that began in it, ttl

Days and minutes are those of UTC. The turn that takes the last tokens of a day ends as it likes; the next one is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from agent_memory import clock as clock_module
from agent_memory import observe
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import ConditionFailed, Dynamo
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import AgentMemoryError, QuotaError

# Counters of so many minutes are taken off the item with every turn. What is left are those of minutes with a longer
# rest after them, 48 a day at most, so the item stays below 1 KB, which is one write unit.
FORGET_MINUTES: Final = 30
_DAY: Final = timedelta(days=1)

_log = logging.getLogger(__name__)


class DynamoQuota:
    """`Quota` on one DynamoDB table.

    Args:
        client: A boto3 ``dynamodb`` client.
        runs_table: Name of RunsTable.
        turns_per_minute: Turns that a resource may begin in a minute; 0: any number.
        tokens_per_day: Input and output tokens of a resource's turns and titles in a day; 0: any number.
        clock: The current time.
        sleep: Waits between tries, in seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        runs_table: str,
        turns_per_minute: int = 0,
        tokens_per_day: int = 0,
        clock: Callable[[], datetime] = clock_module.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._db = Dynamo(client, sleep=sleep)
        self._table = runs_table
        self._turns = turns_per_minute
        self._tokens = tokens_per_day
        self._clock = clock

    def admit(self, owner: str) -> None:
        """See `Quota.admit`. A try whose answer was lost may count twice; never do more turns pass than may."""
        now = self._clock()
        minute = now.hour * 60 + now.minute
        update, conditions = "SET #v = :v, #ttl = :ttl", []
        if self._turns:
            old = [f"#m{number}" for number in range(max(0, minute - FORGET_MINUTES), minute)]
            update += f" ADD #m{minute} :one" + (f" REMOVE {', '.join(old)}" if old else "")
            conditions.append(f"(attribute_not_exists(#m{minute}) OR #m{minute} < :turns)")
        if self._tokens:
            conditions.append("(attribute_not_exists(#tokens) OR #tokens < :tokens)")
        try:
            self._db.update(
                self._table,
                self._key(owner, now),
                **expression(
                    update=update,
                    condition=" AND ".join(conditions),
                    v=keys.SCHEMA,
                    ttl=_forget_at(now),
                    one=1,
                    turns=self._turns,
                    tokens=self._tokens,
                ),
            )
        except ConditionFailed as refused:
            observe.metrics(QuotaRefusals=1)
            raise self._refusal(refused.item or {}, now) from None

    def spend(self, owner: str, tokens: int) -> None:
        """See `Quota.spend`."""
        if not self._tokens or tokens <= 0:
            return
        now = self._clock()
        try:
            self._db.update(
                self._table,
                self._key(owner, now),
                **expression(
                    update="SET #v = :v, #ttl = :ttl ADD #tokens :tokens",
                    v=keys.SCHEMA,
                    ttl=_forget_at(now),
                    tokens=tokens,
                ),
            )
        except AgentMemoryError as error:
            # The answer is given and stored; losing a count harms nobody.
            _log.warning("tokens of a turn could not be counted", extra={"code": error.code, "tokens": tokens})

    def _refusal(self, item: Item, now: datetime) -> QuotaError:
        used = from_item(item).get("tokens", 0)
        if self._tokens and used >= self._tokens:
            left = now.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY - now
            return QuotaError(
                f"expected at most {self._tokens} tokens of this resource a day, found {used}; go on tomorrow (UTC)",
                retry_after_s=_whole_seconds(left),
            )
        left = now.replace(second=0, microsecond=0) + timedelta(minutes=1) - now
        return QuotaError(
            f"expected at most {self._turns} turns of this resource a minute, found one more; wait for the next minute",
            retry_after_s=_whole_seconds(left),
        )

    @staticmethod
    def _key(owner: str, now: datetime) -> Item:
        return to_item({"pk": keys.owner_pk(owner), "sk": f"Q#{now:%Y%m%d}"})


def _forget_at(now: datetime) -> int:
    return clock_module.to_ms(now + 2 * _DAY) // 1000


def _whole_seconds(left: timedelta) -> int:
    return max(1, -(-left // timedelta(seconds=1)))
