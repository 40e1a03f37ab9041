"""What every FileStore does, with the message store and the bucket beside it: nothing in use is ever removed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from agent_memory.agent.services import Services
from agent_memory.attachments import SCHEME, key_of_name, name_of, reference_to
from agent_memory.aws.dynamodb.files import DynamoFileStore
from agent_memory.aws.stream import read_file_change
from agent_memory.errors import ConflictError, UnavailableError
from agent_memory.jobs import files as files_job
from agent_memory.jobs import removed_files
from agent_memory.jobs.runner import Work
from agent_memory.messages import FilePart, Message
from agent_memory.ports import FileRecord, FileStore, FileUse, MessageRef, Thread
from agent_memory.ports.files import GRACE_S
from tests.contract.conftest import World

OWNER = "r"
SPECIAL = "a#b/c*?" + "x" * 490


@dataclass
class Files:
    """A world with files: what writers, the stream and the janitor do."""

    world: World

    def __post_init__(self) -> None:
        self.store = self.world.make_store(runs_table=self.world.names.runs)
        self.files = self.make_files()

    def make_files(self) -> DynamoFileStore:
        world = self.world
        return DynamoFileStore(
            world.dynamodb,
            runs_table=world.names.runs,
            threads_table=world.names.threads,
            clock=world.clock,
            sleep=world.waits.append,
        )

    def upload(self, data: bytes = b"bytes", use: str = "run", owner: str = OWNER) -> str:
        name = name_of(reference_to(data, use=use))
        assert name is not None
        self.files.expect(owner, [FileRecord(name=name, media_type="image/png", filename="dot.png", size=len(data))])
        self.world.blobs.put(key_of_name(name, owner), data, "image/png")
        return name

    def message(self, id: str, *names: str, **fields: Any) -> Message:
        parts = tuple(FilePart(SCHEME + name, "image/png") for name in names)
        return self.world.message(id, **fields).with_parts([*self.world.message(id).parts, *parts])

    def save(self, thread: str, *messages: Message, owner: str = OWNER) -> None:
        self.store.save_messages(owner, thread, messages)

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["pk"]["S"], row["sk"]["N"]): row for row in self.world.scan(self.world.names.messages)}

    def records(self, before: dict[Any, Any]) -> list[dict[str, Any]]:
        """What the stream tells of everything that changed since."""
        now = self.rows()
        found = []
        for number, place in enumerate(sorted(before.keys() | now.keys())):
            old, new = before.get(place), now.get(place)
            if old != new:
                images = {"OldImage": old, "NewImage": new}
                found.append(
                    {
                        "dynamodb": {
                            "Keys": {"pk": {"S": place[0]}, "sk": {"N": place[1]}},
                            "SequenceNumber": f"{number:09d}",
                            **{name: image for name, image in images.items() if image is not None},
                        }
                    }
                )
        return found

    def follow(self, records: list[dict[str, Any]]) -> removed_files.Released:
        changes = [change for record in records if (change := read_file_change(record)) is not None]
        return removed_files.apply(changes, self.store, self.files, self.world.blobs)

    def sweep(self) -> None:
        """The janitor's job to its end."""
        services = Services(files=self.files, blobs=self.world.blobs, store=self.store)
        work = Work(services, None)  # type: ignore[arg-type]
        while not files_job.step(work):
            pass

    def later(self, seconds: float = GRACE_S + 1) -> None:
        self.world.clock.advance(seconds=seconds)

    def there(self, name: str, owner: str = OWNER) -> bool:
        return key_of_name(name, owner) in self.world.objects()

    def uses(self) -> list[str]:
        return [row["mid"]["S"] for row in self.world.scan(self.world.names.runs) if "token" in row]

    def marks(self) -> list[int]:
        rows = self.world.scan(self.world.names.runs)
        return sorted(int(row["due"]["N"]) for row in rows if row["pk"]["S"].startswith("N#M#"))


@pytest.fixture
def here(world: World) -> Files:
    return Files(world)


def test_the_store_has_every_method_of_the_port(here: Files) -> None:
    assert isinstance(here.files, FileStore)


def test_an_upload_that_no_message_takes_expires(here: Files) -> None:
    name = here.upload()
    here.sweep()
    here.later(86_400)
    here.sweep()
    assert here.there(name)
    here.later(3_601)
    here.sweep()
    assert not here.there(name)
    assert here.marks() == []
    found = here.files.find(OWNER, name)
    assert found is not None
    assert found.state == "gone"


@pytest.mark.parametrize(("owner", "thread"), [(OWNER, "t"), (SPECIAL, SPECIAL)], ids=("plain", "special"))
def test_a_file_stays_while_a_message_uses_it_and_a_day_longer(here: Files, owner: str, thread: str) -> None:
    name = here.upload(owner=owner)
    here.save(thread, here.message("m1", name), owner=owner)
    assert here.uses() == ["m1"]
    here.later()
    here.sweep()
    assert here.there(name, owner)
    assert here.marks() == []
    before = here.rows()
    here.store.delete_messages(owner, [MessageRef(owner, thread, "m1", 1)])
    records = here.records(before)
    assert here.follow(records).uses == 1
    assert here.follow(records).uses == 0, "the same record again"
    assert here.uses() == []
    here.sweep()
    here.later(86_400)
    here.sweep()
    assert here.there(name, owner)
    here.later(3_601)
    here.sweep()
    assert not here.there(name, owner)


def test_two_messages_share_a_file_and_the_last_one_takes_it_along(here: Files) -> None:
    name = here.upload()
    here.save("t1", here.message("m1", name))
    here.save("t2", here.message("m1", name))
    before = here.rows()
    here.store.delete_thread(OWNER, "t1")
    here.store.purge_thread(OWNER, "t1")
    here.follow(here.records(before))
    here.later()
    here.sweep()
    assert here.there(name)
    before = here.rows()
    here.store.clear_thread(OWNER, "t2")
    here.store.purge_thread(OWNER, "t2")
    here.follow(here.records(before))
    here.later()
    here.sweep()
    assert not here.there(name)


def test_an_edit_takes_away_what_it_drops_and_notes_what_it_adds(here: Files) -> None:
    old, new = here.upload(b"old"), here.upload(b"new")
    here.save("t", here.message("m1", old))
    before = here.rows()
    here.store.update_message(OWNER, "t", "m1", lambda _: here.message("m1", new))
    here.follow(here.records(before))
    uses = here.files.uses(OWNER, [FileUse(old, "t", "m1"), FileUse(new, "t", "m1")])
    assert list(uses) == [FileUse(new, "t", "m1")]
    here.later()
    here.sweep()
    assert (here.there(old), here.there(new)) == (False, True)


def test_a_record_that_comes_late_takes_nothing_from_a_message_that_was_saved_again(here: Files) -> None:
    name = here.upload()
    here.save("t", here.message("m1", name))
    before = here.rows()
    here.store.delete_messages(OWNER, [MessageRef(OWNER, "t", "m1", 1)])
    late = here.records(before)
    here.files.hold(OWNER, [name])
    here.save("t", here.message("m1", name))
    assert here.follow(late).uses == 0
    here.later()
    here.sweep()
    assert here.there(name)


def test_an_import_that_renumbers_rows_loses_no_use(here: Files) -> None:
    first, second = here.upload(b"1"), here.upload(b"2")
    here.save("t", here.message("m2", first))
    before = here.rows()
    here.save("t", here.message("m1", second, created_at=here.world.clock() - timedelta(days=1)))
    assert here.store.find(OWNER, "t", ["m1", "m2"])["m2"] == 2
    assert here.follow(here.records(before)).uses == 0
    assert sorted(here.uses()) == ["m1", "m2"]


def test_every_way_of_writing_notes_its_uses(here: Files) -> None:
    world = here.world
    many = [here.message(f"m{n:03d}", here.upload(b"%d" % n)) for n in range(60)]
    here.save("batches", *many)
    assert sorted(here.uses()) == sorted(m.id for m in many), "more than one transaction takes"
    header = here.store.get_thread(OWNER, "batches")
    name = here.upload(b"turn")
    from agent_memory.ports import TurnCommit

    here.store.commit(TurnCommit("batches", OWNER, header, appended=(here.message("turn", name),)))
    here.store.commit(TurnCommit("fresh", OWNER, None, appended=(here.message("new", name),)))
    now = world.clock()
    here.store.build_thread(Thread("built", OWNER, now, now), [here.message("b1", name)])
    noted = here.uses()
    assert {"turn", "new", "b1"} <= set(noted)
    assert len(noted) == 63
    assert all("L" in row["files"] for row in here.rows().values())


def test_messages_without_files_cost_nothing_more(here: Files) -> None:
    world = here.world
    world.faults.clear()
    here.save("t", world.message("m1"))
    with_files = world.faults.sent[-1][1]["TransactItems"]
    plain = world.make_store()
    world.faults.clear()
    plain.save_messages(OWNER, "t2", [world.message("m1")])
    assert len(world.faults.sent[-1][1]["TransactItems"]) == len(with_files)
    assert not [row for row in here.rows().values() if "files" in row]


def test_a_transfer_moves_uses_and_the_old_owner_loses_them(here: Files) -> None:
    name = here.upload()
    here.save("t", here.message("m1", name))
    before = here.rows()
    here.files.expect("bob", [FileRecord(name=name)])
    here.world.blobs.copy(key_of_name(name, OWNER), key_of_name(name, "bob"))
    here.store.transfer_thread(OWNER, "t", "bob")
    here.store.purge_thread(OWNER, "t")
    here.follow(here.records(before))
    assert list(here.files.uses("bob", [FileUse(name, "t", "m1")])) == [FileUse(name, "t", "m1")]
    assert here.files.uses(OWNER, [FileUse(name, "t", "m1")]) == {}
    here.later()
    here.sweep()
    assert (here.there(name), here.there(name, "bob")) == (False, True)


def test_a_file_that_was_given_away_is_gone_at_once_unless_another_message_uses_it(here: Files) -> None:
    given, shared, own = here.upload(b"given"), here.upload(b"shared"), here.upload(b"own")
    here.save("t", here.message("m1", given), here.message("m2", shared, given), here.message("m3"))
    here.save("other", here.message("m1", shared))
    assert here.store.buried_uses(OWNER, "t") == ((), None)
    here.store.delete_thread(OWNER, "t")
    uses, more = here.store.buried_uses(OWNER, "t")
    assert more is None
    here.save("t", here.message("m1", own))
    assert here.store.buried_uses(OWNER, "t") == ((), None)  # the id is in use again
    assert {(use.name, use.message_id) for use in uses} == {(given, "m1"), (shared, "m2"), (given, "m2")}
    for _ in range(2):
        here.files.withdraw(OWNER, uses)
    states = [here.files.find(OWNER, name).state for name in (given, shared, own)]  # type: ignore[union-attr]
    assert states == ["gone", "ready", "ready"]
    assert set(here.files.hold(OWNER, [given, shared])) == {shared}
    assert here.there(given)
    here.files.expect(OWNER, [FileRecord(name=given)])  # whoever has the bytes may bring them again
    assert here.files.find(OWNER, given).state == "ready"  # type: ignore[union-attr]
    before = here.rows()
    here.store.delete_messages(OWNER, [MessageRef(OWNER, "other", "m1", 1)])
    here.follow(here.records(before))
    assert here.files.find(OWNER, shared).state == "gone"  # type: ignore[union-attr]
    here.later()
    here.sweep()
    assert (here.there(given), here.there(shared)) == (False, False)


def test_a_copy_comes_back_only_once_no_removal_can_still_run(here: Files) -> None:
    name = here.upload()
    here.later()
    here.sweep()
    with pytest.raises(UnavailableError):
        here.files.expect(OWNER, [FileRecord(name=name)])
    here.later(1_201)
    here.files.expect(OWNER, [FileRecord(name=name)])
    found = here.files.find(OWNER, name)
    assert found is not None
    assert found.state == "ready"


def test_a_resource_that_is_erased_takes_no_files(here: Files) -> None:
    name = here.upload()
    marks = here.marks()
    here.world.dynamodb.put_item(
        TableName=here.world.names.threads,
        Item={"pk": {"S": "R#r"}, "sk": {"S": "R"}, "v": {"N": "1"}, "locked": {"S": "job-1"}},
    )
    for take in (here.upload, lambda: here.files.hold(OWNER, [name])):
        with pytest.raises(ConflictError) as caught:
            take()
        assert caught.value.code == "RESOURCE_LOCKED"
    assert here.marks() == marks


def test_an_upload_is_held_only_while_it_is_known_and_there(here: Files) -> None:
    promised, unknown = "u-" + "a" * 32, "u-" + "b" * 32
    here.files.expect(OWNER, [FileRecord(name=promised, state="promised", media_type="image/png", size=3)])
    held = here.files.hold(OWNER, [promised, unknown])
    assert {name: record.state for name, record in held.items()} == {promised: "promised"}
    ready = FileRecord(name=promised, media_type="image/jpeg", size=3)
    assert here.files.settle(OWNER, ready)
    assert not here.files.settle(OWNER, ready)
    found = here.files.find(OWNER, promised)
    assert found is not None
    assert (found.state, found.media_type, found.size) == ("ready", "image/jpeg", 3)
    here.files.refuse(OWNER, promised)
    assert here.files.find(OWNER, promised) == found, "only what is promised can be refused"


def test_marks_of_a_janitor_that_was_away_for_days_are_found(here: Files) -> None:
    here.sweep()
    names = [here.upload(b"%d" % n, use=str(n)) for n in range(3)]
    here.later(9 * 86_400)
    names.append(here.upload(b"late", use="late"))
    here.sweep()
    assert [here.there(name) for name in names] == [False, False, False, True]


def test_a_janitor_that_dies_after_its_decision_finishes_later(here: Files) -> None:
    name = here.upload()
    here.later()
    ((mark,), more) = here.files.due()
    assert more
    assert here.files.condemn(mark)
    assert here.there(name)
    assert here.files.hold(OWNER, [name]) == {}, "from here on nobody may begin to use it"
    here.sweep()
    assert not here.there(name)
    assert here.marks() == []


# ---------------------------------------------------------------------------------------------------- overflow bodies


def test_bodies_follow_their_rows(here: Files) -> None:
    long = "é" * 200_000
    here.save("t", here.world.message("m1", long), here.world.message("m2", long))
    assert len(here.world.objects()) == 2
    rows = here.rows()
    for place in rows:
        # As the service does when a row's time is over: nobody is there to remove its body.
        here.world.dynamodb.delete_item(
            TableName=here.world.names.messages, Key={"pk": {"S": place[0]}, "sk": {"N": place[1]}}
        )
        break
    records = here.records(rows)
    assert here.follow(records).bodies == 1
    assert here.follow(records).bodies == 1, "again, which harms nobody"
    assert len(here.world.objects()) == 1
    assert here.store.latest(OWNER, "t", 5)[0].text == long


def test_a_message_saved_again_under_its_id_keeps_its_body_whatever_comes_late(here: Files) -> None:
    long = "é" * 200_000
    here.save("t", here.world.message("m1", long))
    before = here.rows()
    here.store.update_message(OWNER, "t", "m1", lambda m: m.replace(content=here.world.message("m1", "short").content))
    late = here.records(before)
    here.store.update_message(OWNER, "t", "m1", lambda m: m.replace(content=here.world.message("m1", long).content))
    here.follow(late)
    assert here.store.latest(OWNER, "t", 5)[0].text == long
    assert len(here.world.objects()) == 1
    again = here.rows()
    here.save("t", here.store.latest(OWNER, "t", 5)[0])
    assert here.rows() == again, "the same again changes nothing"
    assert len(here.world.objects()) == 1


def test_a_body_whose_writer_died_is_found_and_one_in_use_stays(here: Files) -> None:
    long = "é" * 200_000
    here.save("t", here.world.message("m1", long))
    fields = here.store._message_fields(OWNER, "t", here.world.message("m2", long))
    assert set(here.world.objects()) > {fields["body"]}
    here.sweep()
    here.later()
    here.sweep()
    assert len(here.world.objects()) == 1
    assert here.store.latest(OWNER, "t", 5)[0].text == long
    assert here.marks() == []


# --------------------------------------------------------------------------------------------------------------- races


class Between:
    """Does something of another process's before the n-th request of the first one."""

    def __init__(self, *clients: Any) -> None:
        self.left = 0
        self.count = 0
        self.action: Callable[[], None] | None = None
        for client in clients:
            service = client.meta.service_model.service_id.hyphenize()
            client.meta.events.register_first(f"before-call.{service}.*", self._before)

    def run(self, first: Callable[[], Any], then: Callable[[], Any], number: int) -> bool:
        """False where the first one made fewer requests."""
        self.count, self.left, self.action = 0, number, then
        first()
        done, self.action = self.action is None, None
        return done

    def _before(self, **_: Any) -> None:
        self.count += 1
        if self.action is not None and self.count == self.left:
            action, self.action = self.action, None
            action()


@pytest.mark.parametrize("order", ["janitor first", "writer first"])
def test_at_every_point_of_a_removal_a_message_either_keeps_the_file_or_is_told_it_is_gone(
    here: Files, order: str
) -> None:
    """A file nobody uses, its time over; at each request of one side the other side runs to its end."""
    between = Between(here.world.dynamodb, here.world.s3)
    number, outcomes = 0, set()
    while True:
        number += 1
        name = here.upload(b"%d" % number)
        here.later()
        told: list[bool] = []

        def write(name: str = name, told: list[bool] = told, number: int = number) -> None:
            held = name in here.files.hold(OWNER, [name])
            told.append(held)
            if held:
                here.save("t", here.message(f"m{number}", name))

        pair = (here.sweep, write) if order == "janitor first" else (write, here.sweep)
        if not between.run(*pair, number):
            break
        here.later()
        here.sweep()
        assert here.there(name) == told[0]
        outcomes.add(told[0])
    assert number > 3
    assert outcomes == {True, False}


@pytest.mark.parametrize("order", ["stream first", "writer first"])
def test_at_every_point_of_a_release_a_message_that_comes_back_keeps_its_use(here: Files, order: str) -> None:
    between = Between(here.world.dynamodb)
    number = 0
    while True:
        number += 1
        thread, name = f"t{number}", here.upload(b"%d" % number)
        here.save(thread, here.message("m1", name))
        before = here.rows()
        here.store.delete_messages(OWNER, [MessageRef(OWNER, thread, "m1", 1)])
        records = here.records(before)

        def write(thread: str = thread, name: str = name) -> None:
            assert name in here.files.hold(OWNER, [name])
            here.save(thread, here.message("m1", name))

        def follow(records: list[dict[str, Any]] = records) -> None:
            assert here.follow(records).failed == []

        pair = (follow, write) if order == "stream first" else (write, follow)
        if not between.run(*pair, number):
            break
        assert list(here.files.uses(OWNER, [FileUse(name, thread, "m1")])) == [FileUse(name, thread, "m1")]
        here.later()
        here.sweep()
        assert here.there(name)
    assert number > 3


@pytest.mark.parametrize("order", ["copier first", "janitor first"])
def test_at_every_point_of_a_removal_a_copy_for_the_same_owner_is_whole_or_refused(here: Files, order: str) -> None:
    """The same bytes under the same name come back while the old ones are being removed."""
    between = Between(here.world.dynamodb, here.world.s3)
    number = 0
    while True:
        number += 1
        name = here.upload(b"%d" % number)
        here.later()
        done: list[bool] = []

        def copy(name: str = name, done: list[bool] = done, number: int = number) -> None:
            try:
                here.files.expect(OWNER, [FileRecord(name=name)])
            except UnavailableError:
                done.append(False)
                return
            here.world.blobs.put(key_of_name(name, OWNER), b"%d" % number, "image/png")
            here.save("t", here.message(f"m{number}", name))
            done.append(True)

        pair = (copy, here.sweep) if order == "copier first" else (here.sweep, copy)
        if not between.run(*pair, number):
            break
        here.later()
        here.sweep()
        assert here.there(name) == done[0]
    assert number > 3


def test_many_writers_and_janitors_at_once_lose_nothing(here: Files) -> None:
    here.world.skip_on_moto("its transactions are not isolated from each other between threads")
    names = [here.upload(b"%d" % n) for n in range(24)]
    here.later()
    kept: dict[str, bool] = {}
    start = threading.Barrier(4)

    def writer(mine: list[str], place: str) -> None:
        start.wait()
        for number, name in enumerate(mine):
            kept[name] = name in here.make_files().hold(OWNER, [name])
            if kept[name]:
                here.save(place, here.message(f"{place}{number}", name))

    def janitor() -> None:
        start.wait()
        for _ in range(3):
            here.sweep()

    random.Random(7).shuffle(names)
    threads = [
        threading.Thread(target=writer, args=(names[:12], "a")),
        threading.Thread(target=writer, args=(names[12:], "b")),
        threading.Thread(target=janitor),
        threading.Thread(target=janitor),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    here.later()
    here.sweep()
    assert {name: here.there(name) for name in names} == kept
