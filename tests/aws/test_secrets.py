import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from agent_memory.aws.secrets import KEEP_S, Secret
from agent_memory.errors import ConfigurationError, UnavailableError

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"


class FakeSecretsManager:
    """Holds one secret and counts how often it is read."""

    def __init__(self, value):
        self.value = value
        self.reads = []

    def get_secret_value(self, SecretId):
        self.reads.append(SecretId)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def refused(code, status):
    response = {"Error": {"Code": code, "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetSecretValue")


def secret(value, arn=ARN, now=lambda: 0.0):
    manager = FakeSecretsManager({"SecretString": value} if isinstance(value, str) else value)
    return Secret(arn, client=manager, clock=now), manager


def test_a_secret_is_read_once_and_again_after_five_minutes():
    time = [0.0]
    value, manager = secret(" sk-1\n", now=lambda: time[0])
    assert manager.reads == []
    assert [value(), value()] == ["sk-1", "sk-1"]
    assert manager.reads == [ARN]
    manager.value = {"SecretString": "sk-2"}
    time[0] = KEEP_S
    assert value() == "sk-2"


def test_a_field_of_a_json_secret():
    value, manager = secret('{"openai": "sk-1"}', f"{ARN}#openai")
    assert value() == "sk-1"
    assert manager.reads == [ARN]


@pytest.mark.parametrize("text", ["{}", "plain", '{"openai": 3}', '{"openai": ""}', "[]"])
def test_a_missing_field_is_told_without_the_value(text):
    value, _ = secret(text, f"{ARN}#openai")
    with pytest.raises(ConfigurationError) as caught:
        value()
    assert "openai" in caught.value.message
    assert "plain" not in caught.value.message


@pytest.mark.parametrize("answer", [refused("AccessDeniedException", 400), {"SecretBinary": b"x"}])
def test_an_unreadable_secret_is_a_configuration_error(answer):
    with pytest.raises(ConfigurationError) as caught:
        secret(answer)[0]()
    assert caught.value.code == "SECRET_UNREADABLE"


@pytest.mark.parametrize(
    "failure", [refused("InternalServiceError", 500), EndpointConnectionError(endpoint_url="https://x")]
)
def test_an_outage_leaves_the_known_value_in_use(failure):
    time = [0.0]
    value, manager = secret("sk-1", now=lambda: time[0])
    assert value() == "sk-1"
    manager.value = failure
    time[0] = KEEP_S * 2
    assert value() == "sk-1"
    with pytest.raises(UnavailableError):
        secret(failure)[0]()


def test_the_value_shows_nowhere():
    value, _ = secret("sk-1")
    value()
    assert "sk-1" not in repr(value)
