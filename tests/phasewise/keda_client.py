"""A client made from KEDA's published interface alone, as KEDA's own is; and keys for its TLS.

Shares nothing with our own stubs: the text below is compiled at test time, into a pool of its own.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PUBLISHED = """
syntax = "proto3";
package externalscaler;
service ExternalScaler {
  rpc IsActive(ScaledObjectRef) returns (IsActiveResponse);
  rpc StreamIsActive(ScaledObjectRef) returns (stream IsActiveResponse);
  rpc GetMetricSpec(ScaledObjectRef) returns (GetMetricSpecResponse);
  rpc GetMetrics(GetMetricsRequest) returns (GetMetricsResponse);
  rpc StreamMetricSpec(ScaledObjectRef) returns (stream GetMetricSpecResponse);
}
message ScaledObjectRef {
  string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3;
}
message IsActiveResponse { bool result = 1; }
message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }
message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
"""


def compile_interface(text: str, folder: Path) -> descriptor_pb2.FileDescriptorProto:
    """The interface in `text`, as the protocol compiler understands it."""
    (folder / "interface.proto").write_text(text)
    out = folder / "interface.bin"
    compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    options = [f"--proto_path={folder}", f"--descriptor_set_out={out}", "interface.proto"]
    subprocess.run([*compiler, *options], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    for message in file.message_type:
        for field in (*message.field, *(f for m in message.nested_type for f in m.field)):
            field.ClearField("json_name")  # follows from the name
    return file


class Interface:
    """Messages and calls of the published interface."""

    def __init__(self, folder: Path) -> None:
        pool = descriptor_pool.DescriptorPool()
        pool.Add(compile_interface(PUBLISHED, folder))
        self._pool = pool
        self._service = pool.FindServiceByName("externalscaler.ExternalScaler")

    def message(self, name: str, /, **values: Any) -> Any:
        kind = self._pool.FindMessageTypeByName(f"externalscaler.{name}")
        return message_factory.GetMessageClass(kind)(**values)

    def reference(self, **metadata: str) -> Any:
        return self.message(
            "ScaledObjectRef", name="so", namespace="default", scalerMetadata=metadata
        )

    def call(self, channel: grpc.aio.Channel, name: str, request: Any) -> Any:
        """An awaitable for a plain call, an async iterable for a stream."""
        method = self._service.methods_by_name[name]
        make = channel.unary_stream if method.server_streaming else channel.unary_unary
        return make(
            f"/{self._service.full_name}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )(request, timeout=20.0)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes


class Authority:
    """A certificate authority of a test."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._sign(self._name, self._key, authority=True)
        self.cert = self._cert.public_bytes(serialization.Encoding.PEM)

    def identity(self, name: str) -> Identity:
        """A certificate for 127.0.0.1, good for servers and clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return Identity(
            cert=self._sign(subject, key, authority=False).public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.Certificate:
        begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(days=36500))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]),
                critical=False,
            ).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())
