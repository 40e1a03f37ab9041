import json

import jsonschema

from agent_memory.messages import Message
from agent_memory.models.demo import LABEL, DemoModel, title_of
from agent_memory.ports import ModelRequest, PromptFile, PromptMessage, PromptText, PromptToolResult, ToolSpec
from agent_memory.processors.semantic_recall import block
from agent_memory.titles import transcript_of, write_title
from agent_memory.working_memory import DEFAULT_TEMPLATE, system_text


def message(role, *parts, **fields):
    return PromptMessage(role, tuple(PromptText(p) if isinstance(p, str) else p for p in parts), **fields)


def run(*messages, **fields):
    return list(DemoModel().stream(ModelRequest(messages, **fields)))


def answer(*messages, **fields):
    chunks = run(*messages, **fields)
    assert chunks[-1].type == "finish"
    return "".join(chunk.payload["text"] for chunk in chunks if chunk.type == "text-delta")


def call_args(*messages, **fields):
    calls = [chunk.payload for chunk in run(*messages, **fields) if chunk.type == "tool-call"]
    return calls[0]["args"] if calls else None


MARKDOWN_TOOL = ToolSpec("updateWorkingMemory", "", {"type": "object", "properties": {"memory": {"type": "string"}}})
KNOWN = "# User\n- **First Name**:\n- **Location**: Rome"
WORKING_MEMORY = system_text(KNOWN)


def test_it_says_that_it_is_a_demo_and_quotes_the_user():
    text = answer(message("user", "What is a lake?"))
    assert text.startswith(LABEL)
    assert 'You said: "What is a lake?"' in text
    assert "no earlier messages" in text


def test_the_same_prompt_gives_the_same_text():
    prompt = (message("system", "x"), message("user", "one"), message("assistant", "two"), message("user", "three"))
    assert answer(*prompt) == answer(*prompt)


def test_it_counts_what_memory_brought():
    text = answer(
        message("user", "My boat is red", origin="memory"),
        message("assistant", "Noted.", origin="memory"),
        message("user", "Which colour?"),
    )
    assert '2 earlier messages, the oldest (user): "My boat is red"' in text


def test_it_shows_working_memory_and_recall():
    recalled = block([Message.text_message("user", "I like <tea>", id="m1", thread_id="other")])
    text = answer(message("system", WORKING_MEMORY), message("system", recalled), message("user", "hi"))
    assert 'Working memory holds: "# User - **First Name**: - **Location**: Rome"' in text
    assert "Recalled from other conversations: 1 message" in text
    assert "I like <tea>" in text
    empty = answer(message("system", system_text(None)), message("user", "hi"))
    assert "Working memory is on and empty." in empty


def test_a_first_fact_fills_in_the_template():
    args = call_args(message("system", system_text(None)), message("user", "my name is Ada"), tools=(MARKDOWN_TOOL,))
    assert args == {"memory": DEFAULT_TEMPLATE.strip().replace("**First Name**:", "**First Name**: Ada")}


def test_a_title_request_as_memory_makes_it_gets_a_title():
    transcript = transcript_of([Message.text_message("user", "How deep is Lake Baikal?", id="m1")])
    assert write_title(DemoModel(), transcript)[0] == "How deep is Lake Baikal"


def test_it_streams_word_by_word():
    deltas = [chunk.payload["text"] for chunk in run(message("user", "hi")) if chunk.type == "text-delta"]
    assert len(deltas) > 5
    assert all(len(piece.split()) == 1 for piece in deltas)


def test_it_names_attached_files():
    text = answer(message("user", "look", PromptFile("image/png", b"1234", filename="cat.png")))
    assert "cat.png, 4 bytes" in text


def test_a_told_fact_goes_to_working_memory_in_its_place():
    args = call_args(message("system", WORKING_MEMORY), message("user", "Hi, my name is Ada."), tools=(MARKDOWN_TOOL,))
    assert args == {"memory": "# User\n- **First Name**: Ada\n- **Location**: Rome"}


def test_a_fact_without_a_place_is_added():
    args = call_args(message("user", "remember that tea is green"), tools=(MARKDOWN_TOOL,))
    assert args == {"memory": "- **Facts**: tea is green"}


def test_a_fact_goes_into_the_fitting_field_of_a_schema():
    fields = {"memory": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}}
    tool = ToolSpec("updateWorkingMemory", "", {"type": "object", "properties": fields})
    assert call_args(message("user", "my name is Ada"), tools=(tool,)) == {"memory": {"name": "Ada"}}
    assert call_args(message("user", "I live in Rome"), tools=(tool,)) is None


def test_no_tool_is_called_where_none_may_be():
    assert call_args(message("user", "my name is Ada"), tools=(MARKDOWN_TOOL,), tool_choice="none") is None
    assert call_args(message("user", "my name is Ada")) is None


def test_a_result_ends_the_tool_loop():
    prompt = (
        message("user", "my name is Ada"),
        message("tool", PromptToolResult("c1", "updateWorkingMemory", {"success": True})),
    )
    assert call_args(*prompt, tools=(MARKDOWN_TOOL,)) is None
    assert 'The tool updateWorkingMemory returned {"success":true}' in answer(*prompt, tools=(MARKDOWN_TOOL,))


def test_a_title_is_the_beginning_of_what_the_user_said_first():
    prompt = (
        message("system", "Give a short title of at most 80 characters."),
        message("user", 'user: Which "lake" is deepest: Baikal, or some other one?\nassistant: Baikal.'),
    )
    assert answer(*prompt) == "Which lake is deepest Baikal, or some"
    assert title_of("...") == "Conversation"
    assert len(title_of("x" * 500)) <= 60


def test_a_structured_answer_fits_its_schema():
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "size": {"type": "integer", "minimum": 2},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
            "nested": {"$ref": "#/$defs/inner"},
        },
        "required": ["name", "size", "tags", "nested"],
        "$defs": {"inner": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}},
    }
    made = json.loads(answer(message("user", "hi"), response_schema=schema))
    jsonschema.validate(made, schema)
    assert made["name"] == "hi."
