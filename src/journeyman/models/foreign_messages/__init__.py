"""Conversations in the forms of providers and of other libraries, read for `journeyman.history.from_messages`.

What the model said is read by the decoder of its wire, so that it goes back as it came; nothing is left out unsaid.
"""
