"""The objects under one prefix of an S3 bucket. Needs the extra `s3`.

    objects = ObjectStore("s3://shared/pubmed")
    objects.create("writer.json", data)

Endpoint, region and credentials are those of the AWS SDK: environment variables, `~/.aws/config` and
`~/.aws/credentials`, or the role of the machine. They are never logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from epicrisis.core.errors import EpicrisisError, LibraryError, NetworkRefused, SettingsError, StorageError
from epicrisis.system.local_only import is_local, is_local_only, parse_host, permit_host

if TYPE_CHECKING:
    from botocore.client import BaseClient

INSTALL = "pip install 'epicrisis[s3]'"
_CONNECT_SECONDS = 5
_READ_SECONDS = 60
_ATTEMPTS = 3
_DELETED_AT_ONCE = 1000
_WRONG_KEY = frozenset(
    ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "403")
)
_EXPIRED_KEY = frozenset(("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"))
_UNCHANGED = frozenset(("304", "NotModified"))
_CONDITION_FAILED = frozenset(("PreconditionFailed", "412", "ConditionalRequestConflict", "409"))
_WRONG_BUCKET = frozenset(("NoSuchBucket", "InvalidBucketName"))


class ConditionFailed(Exception):
    """The object exists already, or is not the one that was to be replaced."""


class ObjectUnchanged(Exception):
    """The object still has the entity tag that the caller knows."""

    def __init__(self, name: str, read_at: float) -> None:
        super().__init__(name)
        self.read_at = read_at
        """When the server said so, by its clock, in Unix time."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as read."""

    data: bytes
    etag: str
    age: float
    """Seconds since it was written, by the clock of the server."""
    read_at: float
    """When it was read, by the clock of the server, in Unix time."""


class ObjectStore:
    """The objects under one prefix. It is thread-safe.

    Errors of the server and of the SDK are raised as LibraryError, SettingsError or StorageError, NetworkRefused under
    `--local-only` if the server is another machine.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self.bucket = parts.netloc
        self._prefix = parts.path.strip("/")
        self._client = self._connect()
        self.host = parse_host(self._client.meta.endpoint_url) or ""

    @property
    def is_local(self) -> bool:
        """Whether the server is this machine."""
        return is_local(self.host)

    def _connect(self) -> BaseClient:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise LibraryError(f"{self.url}: libraries on object storage need the extra s3: {INSTALL}") from None
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "max_attempts": _ATTEMPTS},
            max_pool_connections=32,
        )
        try:
            session = boto3.Session()
            client = session.client("s3", config=config)
            host = parse_host(client.meta.endpoint_url) or ""
            if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
                # Few other servers resolve bucket.host.
                client = session.client("s3", config=config.merge(Config(s3={"addressing_style": "path"})))
        except (BotoCoreError, ValueError) as error:
            # The message may quote the address of the server, which may contain a password.
            reason = "the address of the server is no URL" if isinstance(error, ValueError) else type(error).__name__
            raise SettingsError(
                f"{self.url}: the settings of AWS cannot be used ({reason}): check AWS_PROFILE, AWS_ENDPOINT_URL, "
                "AWS_REGION and ~/.aws/config"
            ) from None
        return client

    def read(self, name: str, known: str = "") -> StoredObject | None:
        """Return an object, or None without one. Raise ObjectUnchanged if it has the entity tag `known`."""
        condition = {"IfNoneMatch": known} if known else {}
        with self._translate():
            reply = self._call("get_object", _UNCHANGED | {"NoSuchKey"}, Key=self._key(name), **condition)
            date = reply["ResponseMetadata"]["HTTPHeaders"].get("date")
            now = parsedate_to_datetime(date) if date else datetime.now(UTC)
            if "Error" in reply:
                if reply["Error"]["Code"] in _UNCHANGED:
                    raise ObjectUnchanged(name, now.timestamp())
                return None
            data = reply["Body"].read()
        age = max(0.0, (now - reply["LastModified"]).total_seconds())
        return StoredObject(data, reply["ETag"], age, now.timestamp())

    def create(self, name: str, data: bytes) -> str:
        """Write a new object and return its entity tag. Raise ConditionFailed if it exists."""
        return self._put(name, data, IfNoneMatch="*")

    def replace(self, name: str, data: bytes, etag: str) -> str:
        """Replace the object that has this entity tag and return the new one. Raise ConditionFailed for another."""
        return self._put(name, data, IfMatch=etag)

    def _put(self, name: str, data: bytes, **condition: str) -> str:
        with self._translate():
            reply = self._call("put_object", _CONDITION_FAILED, Key=self._key(name), Body=data, **condition)
        if "Error" in reply:
            raise ConditionFailed(name)
        return str(reply["ETag"])

    def upload(self, path: Path, name: str) -> None:
        """Write the content of a file to a new object, in parts if it is large."""
        with self._translate():
            self._client.upload_file(str(path), self.bucket, self._key(name))

    def download(self, name: str, path: Path) -> None:
        """Write an object to a file. Raise FileNotFoundError without the object."""
        from botocore.exceptions import ClientError

        with self._translate():
            try:
                self._client.download_file(self.bucket, self._key(name), str(path))
            except ClientError as error:
                if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                    raise FileNotFoundError(name) from None
                raise

    def list_names(self, folder: str) -> list[str]:
        """Return the names of all objects in a folder."""
        names = []
        with self._translate():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self._key(f"{folder}/")
            )
            for page in pages:
                names += [entry["Key"][len(self._key("")) :] for entry in page.get("Contents", ())]
        return names

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. Missing ones are ignored. Raise the first error of an object after an attempt at all."""
        errors = []
        with self._translate():
            for first in range(0, len(names), _DELETED_AT_ONCE):
                keys = [{"Key": self._key(name)} for name in names[first : first + _DELETED_AT_ONCE]]
                reply = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})
                # The reply is a success even if no object was deleted.
                errors += [error for error in reply.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if errors:
            raise self._translate_reply({"Error": {"Code": errors[0].get("Code", "")}, "ResponseMetadata": {}})

    def abort_uploads(self, folder: str) -> None:
        """Remove the parts of uploads to a folder that were interrupted. They are objects that no list shows."""
        with self._translate():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=self._key(f"{folder}/")
            )
            for page in pages:
                for upload in page.get("Uploads", ()):
                    self._client.abort_multipart_upload(
                        Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )

    def keeps_versions(self) -> bool | None:
        """Return whether the bucket keeps earlier versions of objects. None if this key may not ask."""
        from botocore.exceptions import ClientError

        with self._translate():
            try:
                status = self._client.get_bucket_versioning(Bucket=self.bucket).get("Status")
            except ClientError:
                return None
        # A bucket whose versioning was suspended has the versions from before.
        return status is not None

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _call(self, operation: str, expected: frozenset[str], **arguments: Any) -> Any:
        """Return the reply. It has the key `Error` if the server answered with one of the expected codes."""
        from botocore.exceptions import ClientError

        try:
            return getattr(self._client, operation)(Bucket=self.bucket, **arguments)
        except ClientError as error:
            if str(error.response["Error"]["Code"]) in expected:
                return error.response
            raise

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Permit the server's host within the block, and translate its errors."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            CredentialRetrievalError,
            NoCredentialsError,
            PartialCredentialsError,
            ProfileNotFound,
        )

        if is_local_only() and not self.is_local:
            raise NetworkRefused(
                f"--local-only is on, and {self.url} is at {self.host}: name a library on this machine, or leave out "
                "--local-only"
            )
        try:
            with permit_host(self.host):
                yield
        except EpicrisisError:
            raise
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound) as error:
            raise SettingsError(
                f"{self.url}: no credentials ({type(error).__name__}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ) from None
        except ClientError as error:
            raise self._translate_reply(error.response) from None
        except Boto3Error as error:
            cause = error.__context__ or error
            if isinstance(cause, ClientError):
                raise self._translate_reply(cause.response) from None
            raise self._unreachable(cause) from None
        except BotoCoreError as error:
            raise self._unreachable(error) from None

    def _translate_reply(self, response: Any) -> EpicrisisError:
        code = str(response["Error"]["Code"])
        status = response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code in _WRONG_BUCKET:
            return LibraryError(
                f"there is no bucket {self.bucket} at {self.host}: create it, or check the name and AWS_ENDPOINT_URL"
            )
        if code in _EXPIRED_KEY:
            return SettingsError(f"{self.url}: the credentials have expired: sign in again, then repeat the command")
        if code in _WRONG_KEY:
            return SettingsError(
                f"{self.url}: {self.host} refuses the key ({code}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                "AWS_PROFILE, and that this key may read, write, list and delete there"
            )
        if code in ("NotImplemented", "501"):
            return LibraryError(
                f"{self.host} does not support conditional writes, which the lock of a library needs: use a server "
                "with If-Match and If-None-Match"
            )
        advice = "try again later" if status >= 500 else "check the URL, AWS_ENDPOINT_URL and AWS_REGION"
        return StorageError(f"{self.url}: {self.host} answers {code}: {advice}")

    def _unreachable(self, error: BaseException) -> StorageError:
        return StorageError(
            f"{self.url}: {self.host} cannot be reached ({type(error).__name__}): check that the server runs, the "
            "network, and AWS_ENDPOINT_URL"
        )
