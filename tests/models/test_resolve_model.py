import pytest

from agent_memory.errors import ConfigurationError
from agent_memory.models import resolve_model
from agent_memory.models.demo import DemoModel


@pytest.mark.parametrize(
    ("name", "provider", "model_id"),
    [
        ("demo", "demo", "demo"),
        ("demo/small", "demo", "small"),
        ("scripted", "scripted", "conformance"),
    ],
)
def test_a_name_gives_its_model(name, provider, model_id):
    model = resolve_model(name)
    assert (model.provider, model.model_id) == (provider, model_id)


def test_a_model_is_returned_as_it_is():
    model = DemoModel()
    assert resolve_model(model) is model


@pytest.mark.parametrize("name", ["nobody/gpt", "", "openai", "bedrock:", "/x", "42"])
def test_a_wrong_name_is_refused_with_what_is_known(name):
    with pytest.raises(ConfigurationError) as caught:
        resolve_model(name)
    assert "expected" in caught.value.message
    assert caught.value.code == "MODEL_UNKNOWN"


def test_an_object_that_is_no_model_is_refused():
    with pytest.raises(ConfigurationError, match="found int"):
        resolve_model(7)


def test_an_unknown_setting_is_refused():
    with pytest.raises(ConfigurationError, match="flavour"):
        resolve_model("demo", flavour="x")
