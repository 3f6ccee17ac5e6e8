# The compiled module (native/build_native.py). Imported in codec/arrow_columns.py, codec/kernels.py, codec/packer.py,
# storage/native.py and the transports over ZeroMQ only; its functions are described in the headers of native/.
from typing import Any

ffi: Any
lib: Any
arrow_column: Any  # Put there by ebk_arrow_calls_install (native/python/arrow_calls.h).
arrow_column_of_stream: Any  # Put there by ebk_arrow_calls_install (native/python/arrow_calls.h).
crc32c: Any  # Put there by ebk_python_calls_install (native/python/python_calls.h).
frame_address: Any  # Put there by ebk_python_calls_install (native/python/python_calls.h).
frame_view: Any  # Put there by ebk_python_calls_install (native/python/python_calls.h).
gather: Any  # Put there by ebk_gather_install (native/python/gather.h).
message_head: Any  # Put there by ebk_python_calls_install (native/python/python_calls.h).
packing_type: Any  # Put there by ebk_python_calls_install (native/python/python_calls.h).
send_pieces: Any  # Put there by ebk_gather_install (native/python/gather.h).
