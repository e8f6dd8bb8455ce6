"""What goes wrong with a bucket, in plain words. What a server says is not quoted: it may hold signatures.
Apart from the calls, so that each error is named once.
"""

from __future__ import annotations

import re

from everstep.errors import EverstepError, StoreError, StoreNotWritable, StoreUnavailable
from everstep.stores.objects.cloud.address import CloudAddress

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z.]{1,64})</Code>|code: \"?([A-Za-z.]{1,64})")
_KEY_SERVERS = ("/latest/api/token", "/latest/meta-data", "169.254.170.2", "metadata.google.internal")
_BROKEN = ("HttpError", "reqwest::Error", "hyper", "UnexpectedEof", "body error")
"""Signs that the connection failed, so that the outcome of a request is unknown."""


class Said:
    """What an error of obstore tells, without the rest of its text."""

    def __init__(self, error: BaseException) -> None:
        text = str(error)
        status, code = _STATUS.search(text), _CODE.search(text)
        self.status = int(status[1]) if status else 0
        self.code = (code[1] or code[2]) if code else ""
        self.is_about_keys = any(name in text for name in _KEY_SERVERS)
        self.is_redirect = "BareRedirect" in text
        self.is_late = "kind: Timeout" in text or "TimedOut" in text
        self.is_broken = any(sign in text for sign in _BROKEN)
        self.is_plain = "BadScheme" in text
        self.is_unknown_host = "dns error" in text
        self.is_untrusted = "certificate" in text.lower()

    @property
    def is_conflict(self) -> bool:
        """True if two writes met, and neither the one nor the other is said to have won."""
        return self.code in ("ConditionalRequestConflict", "OperationAborted")

    @property
    def is_no_bucket(self) -> bool:
        return self.code in ("NoSuchBucket", "ContainerNotFound")

    def __str__(self) -> str:
        return " ".join(part for part in (str(self.status or ""), self.code) if part) or "no reason given"


def explain(error: BaseException, at: CloudAddress) -> EverstepError:
    """Say in one line what it means, and what to do."""
    said = Said(error)
    if said.is_about_keys:
        return StoreError(f"no key for {at.place} was found.", fix=_HOW_KEYS[at.kind])
    if said.code in _MEANINGS:
        means, fix = _MEANINGS[said.code]
        kind = StoreNotWritable if said.code in _FULL else StoreError
        return kind(f"{at.place}: {means}.", fix=fix)
    if said.status in (429, 503) or said.code in _THROTTLED:
        return StoreUnavailable(
            f"{at.place} asks for fewer requests ({said}).", fix="It is tried again; or resume the run later."
        )
    if said.status in (408, 409) or (said.status >= 500 and said.status != 501):
        return StoreUnavailable(
            f"the server of {at.place} failed ({said}).", fix="It is tried again; or resume the run later."
        )
    if said.status == 501:
        return StoreError(f"the server of {at.place} cannot do that ({said}).", fix=OTHER_SERVER)
    if said.status in (401, 403) or said.code == "AccessDenied":
        return StoreError(f"this key may not do that on {at.place} ({said}).", fix=_RIGHTS[at.kind])
    if said.is_no_bucket or said.status == 404:
        return StoreError(
            f"there is no bucket {at.bucket!r} at {at.place}.", fix="Check its name, or make it first."
        )
    if said.is_redirect or said.status in (301, 307, 308):
        return StoreError(f"{at.place} is in another region.", fix="Name it with ?region=.")
    return _explain_way(said, at)


def _explain_way(said: Said, at: CloudAddress) -> EverstepError:
    if said.is_plain:
        return StoreError(
            f"{at.place} would be reached without encryption.", fix="Use https, or allow_http=true."
        )
    if said.is_untrusted:
        return StoreError(
            f"the certificate of the server of {at.place} is not trusted.",
            fix="Name a file with the authority's certificate with ?ca=.",
        )
    if said.is_late:
        return StoreUnavailable(
            f"{at.place} did not answer within {at.timeout:g} s.",
            fix="See whether it is overloaded, then try again.",
        )
    if said.is_unknown_host:
        return StoreUnavailable(f"the host of {at.place} is unknown.", fix="Check the endpoint.")
    if said.is_broken:
        return StoreUnavailable(
            f"{at.place} is out of reach.",
            fix="Check the endpoint, and that the server runs; then try again.",
        )
    return StoreError(f"{at.place} failed ({said}).", fix="Run: everstep doctor URL")


OTHER_SERVER = (
    "Use a server that honours If-None-Match and If-Match, as Amazon S3, Google Cloud Storage, Azure, "
    "Cloudflare R2, MinIO and SeaweedFS do."
)
_THROTTLED = ("SlowDown", "RequestLimitExceeded", "TooManyRequests", "ServerBusy", "Throttling")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage")
_RIGHTS = {
    "s3": "Allow s3:GetObject, s3:PutObject, s3:DeleteObject on the prefix, s3:ListBucket on the bucket.",
    "gs": "Give it the role Storage Object User on the bucket.",
    "az": "Give it the role Storage Blob Data Contributor on the container.",
}
_HOW_KEYS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to a file with a key.",
    "az": "Set AZURE_STORAGE_ACCOUNT_KEY, and ?account= in the URL.",
}
_MEANINGS = {
    "SignatureDoesNotMatch": ("the secret does not belong to this key", "Check AWS_SECRET_ACCESS_KEY."),
    "InvalidAccessKeyId": ("the server does not know this key", "Check AWS_ACCESS_KEY_ID and the endpoint."),
    "AuthenticationFailed": ("the server refused the key", "Check it, and the name of the account."),
    "ExpiredToken": ("the session of this key is over", "Get a new one, then resume."),
    "InvalidToken": ("the session token is not valid", "Check AWS_SESSION_TOKEN, or unset it."),
    "RequestTimeTooSkewed": (
        "this machine's clock differs too much from the server's",
        "Set it by NTP, then resume.",
    ),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "Name it with ?region=."),
    "PermanentRedirect": ("the bucket is in another region", "Name it with ?region=."),
    "EntityTooLarge": (
        "a value is larger than the server takes",
        "Keep large values elsewhere: Host(blobs=...).",
    ),
    "QuotaExceeded": ("its quota is used up; nothing was written", "Raise it, or remove runs, then resume."),
    "XMinioStorageFull": ("its disk is full; nothing was written", "Free some space, then resume."),
    "InsufficientStorage": ("its disk is full; nothing was written", "Free some space, then resume."),
    "InvalidBucketState": ("the bucket does not allow that in its state", "See its settings."),
    "InvalidBucketName": ("this is no name for a bucket", "Check the URL."),
}
