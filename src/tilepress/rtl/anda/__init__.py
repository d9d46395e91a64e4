"""Anda's units: the bit-serial processing unit and the bit-plane compressor."""
