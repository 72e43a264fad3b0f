"""The campaign behind the promise that what the joint model lets through can be built."""
