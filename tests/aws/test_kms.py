"""Signatures of receipts: by a key in KMS, and by a key in a file; both verified by the commands of the documentation."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from agent_memory.aws.kms import KmsSigner
from agent_memory.errors import StorageError, UnavailableError
from agent_memory.local.signing import FileSigner
from agent_memory.ports.signing import Signer
from tests.support.faults import Faults

RECEIPT = '{"schema":1,"kind":"erasure","jobId":"é"}'.encode()
DOCS = Path(__file__).resolve().parents[2] / "docs" / "data-protection.md"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")


@pytest.fixture
def kms():
    with mock_aws():
        yield boto3.client("kms", aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


def key_of(kms, spec="ECC_NIST_P256", usage="SIGN_VERIFY"):
    return kms.create_key(KeySpec=spec, KeyUsage=usage)["KeyMetadata"]["Arn"]


def openssl(folder, *arguments):
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


@needs_openssl
def test_a_receipt_signed_by_kms_is_verified_by_openssl_with_the_public_key(kms, tmp_path):
    arn = key_of(kms)
    signer = KmsSigner(kms, arn)
    assert isinstance(signer, Signer)
    assert (signer.key_id, signer.algorithm) == (arn, "ECDSA_SHA_256")
    (tmp_path / "receipt.json").write_bytes(RECEIPT)
    (tmp_path / "signature.bin").write_bytes(signer.sign(RECEIPT))
    (tmp_path / "public.der").write_bytes(kms.get_public_key(KeyId=arn)["PublicKey"])
    command = ("dgst", "-sha256", "-verify", "public.der", "-keyform", "DER", "-signature", "signature.bin")
    assert f"openssl {' '.join(command)} receipt.json" in DOCS.read_text()
    assert openssl(tmp_path, *command, "receipt.json") == (0, "Verified OK")
    (tmp_path / "receipt.json").write_bytes(RECEIPT.replace(b"1", b"2"))
    assert openssl(tmp_path, *command, "receipt.json")[0] != 0


def test_a_busy_service_and_a_wrong_key_are_told_apart(kms):
    faults = Faults(kms)
    signer = KmsSigner(kms, key_of(kms))
    faults.refuse("Sign", "KMSInternalException", status=500)
    with pytest.raises(UnavailableError):
        signer.sign(RECEIPT)
    faults.clear()
    faults.refuse("Sign", "AccessDeniedException")
    with pytest.raises(StorageError, match="ECC_NIST_P256"):
        signer.sign(RECEIPT)


@needs_openssl
def test_a_key_in_a_file_is_made_once_and_its_signatures_are_verified_by_openssl(tmp_path):
    signer = FileSigner(tmp_path / "data" / "receipt.key")
    assert isinstance(signer, Signer)
    signature = signer.sign(RECEIPT)
    assert signature == FileSigner(tmp_path / "data" / "receipt.key").sign(RECEIPT)
    assert stat.S_IMODE((tmp_path / "data" / "receipt.key").stat().st_mode) == 0o600
    key = (tmp_path / "data" / "receipt.key").read_text()
    assert signer.key_id.startswith("file:") and key not in signer.key_id
    assert FileSigner(tmp_path / "other.key").key_id != signer.key_id
    (tmp_path / "receipt.json").write_bytes(RECEIPT)
    assert 'openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(cat .data/receipt.key)" receipt.json' in DOCS.read_text()
    code, output = openssl(tmp_path, "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key}", "receipt.json")
    assert code == 0 and output.endswith(signature.hex())
