"""The vision-language-action model: image and prompt preparation, vision towers, projector, Llama, checkpoint.

The classes are plain ``nn.Module`` objects of the OpenVLA architecture (Kim et al. 2024, "OpenVLA: An Open-Source
Vision-Language-Action Model"); a :class:`~vla_sd_ros.policy.config.PolicyConfig` makes them the small demo policy or
OpenVLA-7B. Nothing here knows ROS or a simulator.
"""
