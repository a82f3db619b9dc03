"""Decoders: from an observation to seven action tokens and their values.

Every decoder has one method, :meth:`~vla_sd_ros.decoding.interface.Decoder.decode`, and every one gives the tokens,
the values, where the time went and how many forwards it cost.
"""
