"""Small annotation lists of the public data sets, by file name, and videos that they name."""

ANNOTATION_LISTS = {
    "ucf101": {
        "classInd.txt": "1 Archery\n2 Biking\n",
        "trainlist01.txt": "Archery/v_Archery_g08_c01.avi 1\nBiking/v_Biking_g08_c01.avi 2\n",
        "testlist01.txt": "Archery/v_Archery_g01_c01.avi\n",
    },
    "hmdb51": {"run_test_split1.txt": "run_1.avi 1 \n", "wave_test_split1.txt": "wave_1.avi 1 \nwave_2.avi 2 \n"},
    "kinetics": {
        "train.csv": "label,youtube_id,time_start,time_end,split\nabseiling,xyz,120,130,train\nzumba,v,0,10,train\n"
    },
    "ssv2": {
        "something-something-v2-labels.json": '{"Closing something": "1", "Putting something": "0"}',
        "something-something-v2-train.json": '[{"id": "74225", "template": "Closing [something]"}, {"id": 9}]',
    },
    "gym99": {
        "gym99_train_element_v1.1.txt": "A0x_E_1 1\nA0x_E_2 0\n",
        "gym99_categories.txt": "Clabel: 0; split\nb\n",
    },
    "diving48": {
        "Diving48_V2_train.json": '[{"vid_name": "8qRm", "label": 1}, {"vid_name": "CVAf", "label": 0}]',
        "Diving48_vocab.json": '[["Back", "PIKE"], ["Front", "FREE"]]',
    },
    "ava": {
        "ava_train_v2.2.csv": "a,0902,0.1,0.2,0.3,0.4,11,0\nb,0903,0.1,0.2,0.3,0.4,12,0\n",
        "ava_train_excluded_timestamps_v2.2.csv": "b,0904\n",
        "ava_action_list_v2.2.pbtxt": 'item {\n name: "sit"\n id: 11\n}\nitem {\n name: "run"\n id: 12\n}\n',
    },
    "breakfast": {
        "mapping.txt": "0 SIL\n1 pour_milk\n",
        "splits/train.split1.bundle": "#bundle\nP03_cam01_P03_milk.txt\nP04_cam01_P04_milk.txt\n",
        "splits/test.split1.bundle": "#bundle\nP05_cam01_P05_milk.txt\n",
        "groundTruth/P03_cam01_P03_milk.txt": "SIL\nSIL\npour_milk\n",
    },
}
LISTED_VIDEOS = (
    *("Archery/v_Archery_g08_c01.avi", "wave_1.avi", "xyz_000120_000130.mp4", "74225.webm", "9.webm", "A0x_E_1.mp4"),
    *("8qRm.mp4", "a.mp4", "P03_cam01_P03_milk.avi"),
)
